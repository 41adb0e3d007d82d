#include "ir/type.h"

#include <fmt/format.h>

namespace mt::ir {

std::string to_string(const Type& type) {
  return fmt::format("{}{}", mlir_name(type.dtype), mt::to_string(type.shape));
}

std::string mlir(const Type& type) {
  std::string out = "tensor<";
  for (const int64_t dim : type.shape) out += fmt::format("{}x", dim);
  return out + std::string(mlir_name(type.dtype)) + ">";
}

}  // namespace mt::ir
