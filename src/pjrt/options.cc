#include "pjrt/options.h"

#include <bit>

namespace mt::pjrt {
namespace {

// The little of protobuf's wire format that is needed.
void put_varint(std::string& out, uint64_t value) {
  for (; value > 0x7f; value >>= 7) out.push_back(static_cast<char>((value & 0x7f) | 0x80));
  out.push_back(static_cast<char>(value));
}

void put_int(std::string& out, uint64_t field, int64_t value) {
  put_varint(out, field << 3);
  put_varint(out, static_cast<uint64_t>(value));
}

void put_bytes(std::string& out, uint64_t field, const std::string& bytes) {
  put_varint(out, field << 3 | 2);
  put_varint(out, bytes.size());
  out += bytes;
}

void put_double(std::string& out, uint64_t field, double value) {
  put_varint(out, field << 3 | 1);
  const auto bits = std::bit_cast<uint64_t>(value);
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(bits >> (8 * i)));
}

// Field numbers of xla/pjrt/proto/compile_options.proto.
constexpr uint64_t kBuildOptions = 3, kOverrides = 7;
constexpr uint64_t kDeviceOrdinal = 1, kReplicas = 4, kPartitions = 5, kSpmd = 6, kShardy = 19;
constexpr uint64_t kMapKey = 1, kMapValue = 2;
constexpr uint64_t kString = 1, kBool = 2, kInt = 3, kDouble = 4;

std::string override_value(const XlaOptionValue& value) {
  std::string out;
  if (const auto* text = std::get_if<std::string>(&value)) {
    put_bytes(out, kString, *text);
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    put_int(out, kBool, *flag ? 1 : 0);
  } else if (const auto* number = std::get_if<int64_t>(&value)) {
    put_int(out, kInt, *number);
  } else {
    put_double(out, kDouble, std::get<double>(value));
  }
  return out;
}

// Its collectives end the process when a device waits 40 s for its peers: with more devices than
// cores, and big programs, one may well be that much behind.
// Each sum or maximum that it hands to the YNNPACK library is set up anew at the first run, on
// every device: a fifth of a second of a model of eight layers on four devices, and no step is
// faster for it.
const std::map<std::string, XlaOptionValue>& cpu_defaults(bool several_devices) {
  static const std::map<std::string, XlaOptionValue> kOne{
      {"xla_cpu_experimental_ynn_fusion_type",
       std::string("LIBRARY_FUSION_TYPE_DOT,LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT")}};
  static const std::map<std::string, XlaOptionValue> kSeveral = [] {
    auto options = kOne;
    options.emplace("xla_cpu_collective_call_terminate_timeout_seconds", int64_t{1800});
    return options;
  }();
  return several_devices ? kSeveral : kOne;
}

}  // namespace

CompileOptions with_cpu_defaults(CompileOptions options) {
  const auto& defaults = cpu_defaults(options.num_partitions > 1);
  options.xla.insert(defaults.begin(), defaults.end());  // what is there stays
  return options;
}

std::string serialize(const CompileOptions& options) {
  std::string build;
  put_int(build, kDeviceOrdinal, -1);
  put_int(build, kReplicas, 1);
  put_int(build, kPartitions, options.num_partitions);
  if (options.num_partitions > 1) put_int(build, kSpmd, 1);
  // Also on one device: the program's sdy ops must be taken out by somebody.
  if (options.shardy) put_int(build, kShardy, 1);
  std::string out;
  put_bytes(out, kBuildOptions, build);
  for (const auto& [name, value] : options.xla) {
    std::string entry;
    put_bytes(entry, kMapKey, name);
    put_bytes(entry, kMapValue, override_value(value));
    put_bytes(out, kOverrides, entry);
  }
  return out;
}

}  // namespace mt::pjrt
