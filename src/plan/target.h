// What a program is compiled for: this machine's devices, or a topology that need not be here.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "config/config.h"
#include "nnx/partition.h"
#include "pjrt/client.h"
#include "plan/hardware.h"

namespace mt::plan {

struct CompiledFacts {
  pjrt::ProgramMemory memory;
  std::map<std::string, double> cost;  // the compiler's; a loop's body counted once
  pjrt::OptimizedProgram optimized;
  double seconds = 0;  // of compiling
};

class Target {
 public:
  // compile_topology, or else this machine's devices. Throws kConfig for an unknown topology or a
  // mesh that doesn't fit it, kDevice for a plugin that is missing or refuses.
  static Target open(const config::Config& config);

  const std::shared_ptr<const nnx::Partitioner>& partitioner() const { return partitioner_; }
  bool is_here() const { return client_ != nullptr; }  // programs compiled for it could run now
  bool shares_host_memory() const { return client_ != nullptr && client_->is_cpu(); }
  int64_t device_count() const { return partitioner_->mesh.device_count(); }
  std::string description() const;  // "v5p-8: 4 x TPU v5p (tpu)"
  // Bytes that a program can have on one device; of devices that share the host's, all together.
  int64_t memory() const;
  const std::optional<Machine>& machine() const { return machine_; }

  CompiledFacts compile(const std::string& stablehlo, pjrt::CompileOptions options) const;

 private:
  std::shared_ptr<const pjrt::Client> client_;  // of this machine
  std::optional<Machine> machine_;              // else
  std::shared_ptr<const pjrt::Topology> topology_;
  std::shared_ptr<const nnx::Partitioner> partitioner_;
};

}  // namespace mt::plan
