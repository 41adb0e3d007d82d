// Machines that need not be here: a plugin compiles for their devices without having any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "pjrt/named_values.h"
#include "pjrt/options.h"
#include "pjrt/program.h"

struct PJRT_TopologyDescription;

namespace mt::pjrt {

struct TopologyOptions {
  std::string platform;  // tpu, cuda, or a plugin's file
  std::string name;      // in the plugin's words: "v5p:2x2x1"; "" where `extra` says it
  NamedValues extra;     // the plugin's own create options
};

class Topology {
 public:
  // Throws kDevice: no such plugin, or the plugin's refusal.
  static Topology create(const TopologyOptions& options);
  ~Topology();
  Topology(Topology&& other) noexcept;
  Topology& operator=(Topology&&) = delete;

  int64_t device_count() const { return device_count_; }
  const std::string& device_kind() const { return device_kind_; }  // "TPU v5", "NVIDIA H200"
  const std::string& platform_name() const { return platform_name_; }
  const Plugin& plugin() const { return *plugin_; }

  // `program` is StableHLO text. Throws kDevice with the compiler's text, kLimit if it doesn't fit.
  Program compile(std::string_view program, const CompileOptions& options) const;

 private:
  explicit Topology(std::shared_ptr<const Plugin> plugin) : plugin_(std::move(plugin)) {}
  void read_devices();
  std::shared_ptr<const Plugin> plugin_;
  PJRT_TopologyDescription* topology_ = nullptr;
  int64_t device_count_ = 0;
  std::string device_kind_;
  std::string platform_name_;
};

}  // namespace mt::pjrt
