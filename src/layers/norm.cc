#include "layers/norm.h"

#include "sharding/axes.h"

namespace mt::layers {

RMSNorm::RMSNorm(int64_t features, double epsilon, DType weight_dtype)
    : scale(nnx::param(weight_dtype, {features}, {std::string(sharding::axes::norm)},
                       nnx::initializers::ones())),
      epsilon_(epsilon) {}

ir::Value RMSNorm::operator()(ir::Value x) const {
  const ir::Value f = ir::cast(x, DType::kF32);
  const ir::Value inverse = ir::rsqrt(ir::mean(f * f, {-1}, true) + epsilon_);
  return ir::cast(f * inverse * ir::cast(scale.value, DType::kF32), x.dtype());
}

}  // namespace mt::layers
