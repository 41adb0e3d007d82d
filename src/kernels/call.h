// A custom call as its handler sees it: checked views of arguments, results and attributes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kernels/ffi_abi.h"

namespace mt::kernels {

struct Operand {
  int32_t dtype = 0;  // ffi::DataType
  void* data = nullptr;
  std::span<const int64_t> dims;

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  int64_t last() const { return dims.back(); }
  int64_t rows() const;  // the product of all dimensions but the last
};
std::string to_string(const Operand& operand);  // "u8[1024, 440]"

// Every getter throws kShape with a text that names the argument, result or attribute.
class Call {
 public:
  explicit Call(const ffi::CallFrame& frame) : frame_(&frame) {}
  int64_t argument_count() const { return frame_->arguments.size; }
  int64_t result_count() const { return frame_->results.size; }
  Operand argument(int64_t i) const;
  Operand result(int64_t i) const;
  int64_t integer(std::string_view attribute) const;
  bool has(std::string_view attribute) const;
  double number(std::string_view attribute) const;

 private:
  int64_t find(std::string_view attribute) const;  // its number; -1: none
  const ffi::Scalar& scalar(std::string_view attribute, int32_t dtype) const;
  const ffi::CallFrame* frame_;
};

// What every handler is: answers XLA's question for the version, or runs `body` and turns what it
// throws into an error of the call.
ffi::Error* run_handler(ffi::CallFrame* frame, void (*body)(const Call&));

}  // namespace mt::kernels
