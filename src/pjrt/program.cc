#include "pjrt/program.h"

#include <utility>

#include "pjrt/api.h"

namespace mt::pjrt {

Program::Program(std::shared_ptr<const Plugin> plugin, PJRT_Executable* executable)
    : plugin_(std::move(plugin)), executable_(executable) {}

Program::~Program() {
  if (executable_ == nullptr) return;
  PJRT_Executable_Destroy_Args args{};
  args.executable = executable_;
  call_quietly(plugin_->api(), args);
}

Program::Program(Program&& other) noexcept
    : plugin_(std::move(other.plugin_)), executable_(std::exchange(other.executable_, nullptr)) {}

Program& Program::operator=(Program&& other) noexcept {
  std::swap(plugin_, other.plugin_);
  std::swap(executable_, other.executable_);
  Program gone(std::move(other));
  return *this;
}

ProgramMemory Program::memory_stats() const {
  PJRT_Executable_GetCompiledMemoryStats_Args args{};
  args.executable = executable_;
  call(plugin_->api(), args);
  ProgramMemory out;
  out.arguments = args.argument_size_in_bytes;
  out.outputs = args.output_size_in_bytes;
  out.aliased = args.alias_size_in_bytes;
  out.temporaries = args.temp_size_in_bytes;
  out.code = args.generated_code_size_in_bytes;
  out.host_temporaries = args.host_temp_size_in_bytes;
  out.peak = args.peak_memory_in_bytes;
  return out;
}

std::map<std::string, double> Program::cost_analysis() const {
  PJRT_Executable_GetCostAnalysis_Args args{};
  args.executable = executable_;
  if (!has<PJRT_Executable_GetCostAnalysis_Args>(plugin_->api())) return {};
  if (PJRT_Error* error = try_call(plugin_->api(), args)) {
    take_error(plugin_->api(), error, "");  // not implemented here
    return {};
  }
  std::map<std::string, double> out;
  for (size_t i = 0; i < args.num_properties; ++i) {
    const PJRT_NamedValue& property = args.properties[i];
    const std::string key(property.name, property.name_size);
    if (property.type == PJRT_NamedValue_kFloat) {
      out[key] = static_cast<double>(property.float_value);
    } else if (property.type == PJRT_NamedValue_kInt64) {
      out[key] = static_cast<double>(property.int64_value);
    }
  }
  return out;
}

OptimizedProgram Program::optimized_program() const {
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  PJRT_Executable_OptimizedProgram_Args args{};
  args.executable = executable_;
  args.program = &program;
  call(plugin_->api(), args);  // asks for the size
  OptimizedProgram out;
  out.bytes.resize(program.code_size);
  program.code = out.bytes.data();
  call(plugin_->api(), args);
  out.format.assign(program.format, program.format_size);
  return out;
}

std::string Program::serialize() const {
  PJRT_Executable_Serialize_Args args{};
  args.executable = executable_;
  call(plugin_->api(), args);
  std::string out(args.serialized_bytes, args.serialized_bytes_size);
  args.serialized_executable_deleter(args.serialized_executable);
  return out;
}

std::string Program::fingerprint() const {
  PJRT_Executable_Fingerprint_Args args{};
  args.executable = executable_;
  if (!has<PJRT_Executable_Fingerprint_Args>(plugin_->api())) return "";
  if (PJRT_Error* error = try_call(plugin_->api(), args)) {
    take_error(plugin_->api(), error, "");  // not implemented here
    return "";
  }
  return std::string(args.executable_fingerprint, args.executable_fingerprint_size);
}

}  // namespace mt::pjrt
