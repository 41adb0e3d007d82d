#include "kernels/call.h"

#include <fmt/ranges.h>

#include <exception>
#include <functional>
#include <numeric>

#include "base/error.h"

namespace mt::kernels {
namespace {

std::string dtype_name(int32_t dtype) {
  switch (dtype) {
    case ffi::kS8: return "s8";
    case ffi::kS32: return "s32";
    case ffi::kS64: return "s64";
    case ffi::kU8: return "u8";
    case ffi::kU32: return "u32";
    case ffi::kF16: return "f16";
    case ffi::kF32: return "f32";
    case ffi::kF64: return "f64";
    case ffi::kBF16: return "bf16";
    default: return fmt::format("type {}", dtype);
  }
}

Operand operand(const ffi::Values& values, int64_t i, const char* what) {
  if (i < 0 || i >= values.size) {
    throw fail(ErrorKind::kShape, "{} {} of {} is missing", what, i, values.size);
  }
  if (values.types[i] != ffi::kBufferArgument) {
    throw fail(ErrorKind::kShape, "{} {} is not a buffer", what, i);
  }
  const auto* buffer = static_cast<const ffi::Buffer*>(values.values[i]);
  return {buffer->dtype, buffer->data, {buffer->dims, static_cast<size_t>(buffer->rank)}};
}

ffi::Error* error(const ffi::CallFrame& frame, int32_t code, const std::string& text) {
  ffi::ErrorCreateArgs args{sizeof(ffi::ErrorCreateArgs), nullptr, text.c_str(), code};
  return frame.api->create_error(&args);
}

bool answer_metadata(const ffi::CallFrame& frame) {
  ffi::Extension* extension = frame.extensions;
  if (extension == nullptr || extension->type != ffi::kMetadataExtension) return false;
  ffi::Metadata& metadata = *reinterpret_cast<ffi::MetadataExtension*>(extension)->metadata;
  metadata.version = {sizeof(ffi::Version), nullptr, ffi::kMajor, ffi::kMinor};
  metadata.traits = 0;
  return true;
}

}  // namespace

int64_t Operand::rows() const {
  return std::accumulate(dims.begin(), dims.end() - 1, int64_t{1}, std::multiplies<>());
}

std::string to_string(const Operand& operand) {
  return fmt::format("{}[{}]", dtype_name(operand.dtype), fmt::join(operand.dims, ", "));
}

Operand Call::argument(int64_t i) const { return operand(frame_->arguments, i, "argument"); }
Operand Call::result(int64_t i) const { return operand(frame_->results, i, "result"); }

int64_t Call::find(std::string_view attribute) const {
  const ffi::Attributes& all = frame_->attributes;
  for (int64_t i = 0; i < all.size; ++i) {
    if (std::string_view(all.names[i]->data, all.names[i]->size) == attribute) return i;
  }
  return -1;
}

bool Call::has(std::string_view attribute) const { return find(attribute) >= 0; }

const ffi::Scalar& Call::scalar(std::string_view attribute, int32_t dtype) const {
  const int64_t i = find(attribute);
  if (i < 0) throw fail(ErrorKind::kShape, "attribute {} is missing", attribute);
  const ffi::Attributes& all = frame_->attributes;
  const auto* found = static_cast<const ffi::Scalar*>(all.values[i]);
  if (all.types[i] != ffi::kScalarAttribute || found->dtype != dtype) {
    throw fail(ErrorKind::kShape, "attribute {} is not an {}", attribute,
               dtype == ffi::kS64 ? "i64" : "f64");
  }
  return *found;
}

int64_t Call::integer(std::string_view attribute) const {
  return *static_cast<const int64_t*>(scalar(attribute, ffi::kS64).value);
}

double Call::number(std::string_view attribute) const {
  return *static_cast<const double*>(scalar(attribute, ffi::kF64).value);
}

ffi::Error* run_handler(ffi::CallFrame* frame, void (*body)(const Call&)) {
  if (answer_metadata(*frame)) return nullptr;
  // Nothing may be thrown through XLA's frames.
  try {
    if (frame->stage != ffi::kExecuteStage) return nullptr;
    body(Call(*frame));
    return nullptr;
  } catch (const Error& e) {
    return error(*frame, ffi::kInvalidArgument, e.what());
  } catch (const std::exception& e) {
    return error(*frame, ffi::kInternal, e.what());
  }
}

}  // namespace mt::kernels
