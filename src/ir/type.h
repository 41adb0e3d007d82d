// The type of a value: element type and static shape.
#pragma once

#include <string>

#include "base/dtype.h"
#include "base/shape.h"

namespace mt::ir {

struct Type {
  DType dtype = DType::kF32;
  Shape shape;
  bool operator==(const Type&) const = default;
};

std::string to_string(const Type& type);  // "f32[2, 3]"
std::string mlir(const Type& type);       // "tensor<2x3xf32>"

}  // namespace mt::ir
