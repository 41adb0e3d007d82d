#include "pjrt/client.h"

#include <algorithm>

#include "pjrt/api.h"

namespace mt::pjrt {
namespace {

// The CPU plugin makes as many devices as it is asked for; each costs a few threads.
constexpr int64_t kMostCpuDevices = 1024;

bool wants_cpu(const ClientOptions& options, const Plugin& plugin) {
  return options.platform == "cpu" ||
         plugin.path().find("pjrt_c_api_cpu_plugin") != std::string::npos;
}

DeviceInfo describe(const PJRT_Api& api, PJRT_Device* device) {
  PJRT_Device_GetDescription_Args get{};
  get.device = device;
  call(api, get);
  DeviceInfo info;
  PJRT_DeviceDescription_Id_Args id{};
  id.device_description = get.device_description;
  call(api, id);
  info.id = id.id;
  PJRT_DeviceDescription_Kind_Args kind{};
  kind.device_description = get.device_description;
  call(api, kind);
  info.kind.assign(kind.device_kind, kind.device_kind_size);
  PJRT_DeviceDescription_ToString_Args text{};
  text.device_description = get.device_description;
  call(api, text);
  info.description.assign(text.to_string, text.to_string_size);
  return info;
}

}  // namespace

std::shared_ptr<Client> Client::create(const ClientOptions& options) {
  if (options.device_count < 0 || options.device_count > kMostCpuDevices * 1024) {
    throw fail(ErrorKind::kConfig, "cannot make a client with {} devices", options.device_count);
  }
  std::shared_ptr<Client> client(new Client());
  client->plugin_ = Plugin::load(options.platform);
  NamedValues extra = options.extra;
  if (wants_cpu(options, *client->plugin_)) {
    if (options.device_count > kMostCpuDevices) {
      throw fail(ErrorKind::kConfig, "{} CPU devices asked for, at most {} can be made",
                 options.device_count, kMostCpuDevices);
    }
    extra.emplace("cpu_device_count", std::max<int64_t>(options.device_count, 1));
  }
  const std::vector<PJRT_NamedValue> values = c_values(extra);
  PJRT_Client_Create_Args args{};
  args.create_options = values.data();
  args.num_options = values.size();
  call(client->api(), args);
  client->client_ = args.client;
  client->read_devices();
  const auto have = static_cast<int64_t>(client->devices_.size());
  if (have < options.device_count) {
    throw fail(ErrorKind::kConfig, "{} devices asked for, platform {} has {}", options.device_count,
               client->platform_name_, have);
  }
  return client;
}

void Client::read_devices() {
  PJRT_Client_PlatformName_Args name{};
  name.client = client_;
  call(api(), name);
  platform_name_.assign(name.platform_name, name.platform_name_size);
  PJRT_Client_PlatformVersion_Args version{};
  version.client = client_;
  call(api(), version);
  platform_version_.assign(version.platform_version, version.platform_version_size);
  PJRT_Client_AddressableDevices_Args list{};
  list.client = client_;
  call(api(), list);
  raw_devices_.assign(list.addressable_devices,
                      list.addressable_devices + list.num_addressable_devices);
  for (PJRT_Device* device : raw_devices_) devices_.push_back(describe(api(), device));
}

Client::~Client() {
  if (client_ == nullptr) return;
  finish_running();
  PJRT_Client_Destroy_Args args{};
  args.client = client_;
  call_quietly(api(), args);
}

std::optional<DeviceMemory> Client::memory_stats(size_t device) const {
  PJRT_Device_MemoryStats_Args args{};
  args.device = raw_device(device);
  if (!has<PJRT_Device_MemoryStats_Args>(api())) return std::nullopt;
  if (PJRT_Error* error = try_call(api(), args)) {
    take_error(api(), error, "");  // unimplemented: not a fault
    return std::nullopt;
  }
  DeviceMemory out;
  out.in_use = args.bytes_in_use;
  if (args.peak_bytes_in_use_is_set) out.peak = args.peak_bytes_in_use;
  if (args.bytes_limit_is_set) out.limit = args.bytes_limit;
  return out;
}

void Client::finish_running() const {
  for (PJRT_Event* event : running_) {
    PJRT_Event_Await_Args await{};
    await.event = event;
    call_quietly(api(), await);  // the run's results carry its error
    PJRT_Event_Destroy_Args destroy{};
    destroy.event = event;
    call_quietly(api(), destroy);
  }
  running_.clear();
}

void Client::launch_in_turn(const std::function<std::vector<PJRT_Event*>()>& launch) const {
  const std::lock_guard<std::mutex> lock(launch_mutex_);
  if (is_cpu()) finish_running();
  running_ = launch();
}

PJRT_Device* Client::raw_device(size_t device) const {
  if (device >= raw_devices_.size()) {
    throw fail(ErrorKind::kDevice, "device {} of {} asked for", device, raw_devices_.size());
  }
  return raw_devices_[device];
}

}  // namespace mt::pjrt
