#include "nnx/variable.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "ir/random.h"

namespace mt::nnx {

std::string_view name(VariableKind kind) {
  constexpr std::array<std::string_view, 6> kNames{"Param",        "BatchStat", "Cache",
                                                   "Intermediate", "RngState",  "OptState"};
  return kNames[static_cast<size_t>(kind)];
}

Shape Variable::layer_shape() const {
  Shape shape = type.shape;
  if (stack_axis >= 0) shape.erase(shape.begin() + stack_axis);
  return shape;
}

namespace initializers {
namespace {

// The standard deviation of N(0, 1) cut at +-2.
constexpr double kTruncatedStddev = 0.87962566103423978;

Initializer constant(double value) {
  return {fmt::format("constant {}", value), [value](ir::Value keys, Shape shape, DType dtype) {
            shape.insert(shape.begin(), keys.dim(0));
            return ir::full(*keys.graph, dtype, shape, value);
          }};
}

}  // namespace

Initializer zeros() { return constant(0); }
Initializer ones() { return constant(1); }

Initializer normal(double stddev) {
  return {fmt::format("normal {}", stddev),
          [stddev](ir::Value keys, const Shape& shape, DType dtype) {
            return ir::cast(ir::random_normal(keys, shape) * stddev, dtype);
          }};
}

Initializer variance_scaling(int64_t fan_in, bool truncated) {
  const double stddev = std::sqrt(1.0 / static_cast<double>(fan_in));
  if (!truncated) return normal(stddev);
  return {fmt::format("truncated {}", stddev),
          [stddev](ir::Value keys, const Shape& shape, DType dtype) {
            return ir::cast(ir::random_truncated_normal(keys, shape) * (stddev / kTruncatedStddev),
                            dtype);
          }};
}

}  // namespace initializers
}  // namespace mt::nnx
