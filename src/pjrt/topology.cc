#include "pjrt/topology.h"

#include <cstdlib>
#include <utility>

#include "pjrt/api.h"

namespace mt::pjrt {
namespace {

// Else libtpu asks a metadata server what machine this is, for minutes. The user's values win.
void tell_libtpu_there_is_no_tpu() {
  ::setenv("TPU_SKIP_MDS_QUERY", "1", 0);
  ::setenv("TPU_ACCELERATOR_TYPE", "v5p-8", 0);
  ::setenv("TPU_WORKER_HOSTNAMES", "localhost", 0);
  // It holds no TPU, so others may load it meanwhile.
  ::setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1", 0);
}

}  // namespace

Topology Topology::create(const TopologyOptions& options) {
  if (options.platform == "tpu") tell_libtpu_there_is_no_tpu();
  Topology out(Plugin::load(options.platform));
  const std::vector<PJRT_NamedValue> values = c_values(options.extra);
  PJRT_TopologyDescription_Create_Args args{};
  args.topology_name = options.name.data();
  args.topology_name_size = options.name.size();
  args.create_options = values.data();
  args.num_options = values.size();
  call(out.plugin_->api(), args);
  out.topology_ = args.topology;
  out.read_devices();
  return out;
}

void Topology::read_devices() {
  const PJRT_Api& api = plugin_->api();
  PJRT_TopologyDescription_PlatformName_Args name{};
  name.topology = topology_;
  call(api, name);
  platform_name_.assign(name.platform_name, name.platform_name_size);
  PJRT_TopologyDescription_GetDeviceDescriptions_Args list{};
  list.topology = topology_;
  call(api, list);
  device_count_ = static_cast<int64_t>(list.num_descriptions);
  if (device_count_ == 0) return;
  PJRT_DeviceDescription_Kind_Args kind{};
  kind.device_description = list.descriptions[0];
  call(api, kind);
  device_kind_.assign(kind.device_kind, kind.device_kind_size);
}

Topology::~Topology() {
  if (topology_ == nullptr) return;
  PJRT_TopologyDescription_Destroy_Args args{};
  args.topology = topology_;
  call_quietly(plugin_->api(), args);
}

Topology::Topology(Topology&& other) noexcept
    : plugin_(std::move(other.plugin_)),
      topology_(std::exchange(other.topology_, nullptr)),
      device_count_(other.device_count_),
      device_kind_(std::move(other.device_kind_)),
      platform_name_(std::move(other.platform_name_)) {}

Program Topology::compile(std::string_view program, const CompileOptions& options) const {
  std::string code(program);  // the C struct wants a pointer to non-const
  PJRT_Program text{};
  text.struct_size = PJRT_Program_STRUCT_SIZE;
  text.code = code.data();
  text.code_size = code.size();
  text.format = "mlir";
  text.format_size = 4;
  const std::string bytes = serialize(options);
  PJRT_Compile_Args args{};
  args.topology = topology_;
  args.program = &text;
  args.compile_options = bytes.data();
  args.compile_options_size = bytes.size();
  call(plugin_->api(), args);
  return Program(plugin_, args.executable);
}

}  // namespace mt::pjrt
