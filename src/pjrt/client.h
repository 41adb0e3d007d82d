// A client: one plugin's devices, opened for this process.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "pjrt/named_values.h"
#include "pjrt/plugin.h"

struct PJRT_Client;
struct PJRT_Device;
struct PJRT_Event;

namespace mt::pjrt {

struct ClientOptions {
  std::string platform = "cpu";  // or cuda, tpu, a plugin's file
  // CPU: the number of virtual devices (0 means 1). Elsewhere: how many there must be at least.
  int64_t device_count = 0;
  NamedValues extra;  // the plugin's own create options
};

struct DeviceInfo {
  int id = 0;
  std::string kind;         // "cpu", "NVIDIA H200"
  std::string description;  // the plugin's own words
};

struct DeviceMemory {  // bytes
  int64_t in_use = 0;
  std::optional<int64_t> peak;
  std::optional<int64_t> limit;
};

// Buffers, arrays and executables hold a shared_ptr to their client, so it outlives them.
// Thread-safe.
class Client : public std::enable_shared_from_this<Client> {
 public:
  // Throws kDevice with the plugin's text, kConfig for a bad device count.
  static std::shared_ptr<Client> create(const ClientOptions& options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const Plugin& plugin() const { return *plugin_; }
  const std::shared_ptr<const Plugin>& shared_plugin() const { return plugin_; }
  const std::string& platform_name() const { return platform_name_; }
  const std::string& platform_version() const { return platform_version_; }
  bool is_cpu() const { return platform_name_ == "cpu"; }
  // Position in this list is the device's position in a mesh.
  const std::vector<DeviceInfo>& devices() const { return devices_; }
  // Empty where the plugin keeps no such figures (CPU).
  std::optional<DeviceMemory> memory_stats(size_t device) const;

  // For this room.
  const PJRT_Api& api() const { return plugin_->api(); }
  PJRT_Client* raw() const { return client_; }
  PJRT_Device* raw_device(size_t device) const;
  // Starts a run over several devices: `launch` does it and, on CPU, returns the run's completion
  // events. One at a time, so that all devices see the same order. On CPU the run before must also
  // have finished: a device waits for its peers in a collective by blocking one of as many threads
  // as there are devices, and two runs under way can block them all, for ever.
  void launch_in_turn(const std::function<std::vector<PJRT_Event*>()>& launch) const;

 private:
  Client() = default;
  void read_devices();
  void finish_running() const;
  std::shared_ptr<const Plugin> plugin_;
  PJRT_Client* client_ = nullptr;
  std::vector<PJRT_Device*> raw_devices_;
  std::vector<DeviceInfo> devices_;
  std::string platform_name_;
  std::string platform_version_;
  mutable std::mutex launch_mutex_;
  mutable std::vector<PJRT_Event*> running_;  // guarded by launch_mutex_
};

}  // namespace mt::pjrt
