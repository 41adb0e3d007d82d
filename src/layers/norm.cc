#include "layers/norm.h"

#include "sharding/axes.h"

namespace mt::layers {

RMSNorm::RMSNorm(int64_t features, double epsilon, DType weight_dtype)
    : scale(nnx::param(weight_dtype, {features}, {std::string(sharding::axes::norm)},
                       nnx::initializers::ones())),
      epsilon_(epsilon) {}

ir::Value RMSNorm::operator()(ir::Value x) const {
  if (cpu_kernel) return call_kernel({x, scale.value}, 1);
  const ir::Value f = ir::cast(x, DType::kF32);
  const ir::Value inverse = ir::rsqrt(ir::mean(f * f, {-1}, true) + epsilon_);
  return ir::cast(f * inverse * ir::cast(scale.value, DType::kF32), x.dtype());
}

ir::Value RMSNorm::with_rope(ir::Value x_blnh, const RopeTable& table, double factor) const {
  if (cpu_kernel) return call_kernel({x_blnh, scale.value, table.cos_blh, table.sin_blh}, factor);
  const ir::Value turned = apply_rope((*this)(x_blnh), table);
  return factor == 1 ? turned : turned * factor;
}

ir::Value RMSNorm::call_kernel(std::vector<ir::Value> operands, double factor) const {
  const ir::Type type = operands[0].type();
  return ir::custom_call(
      *operands[0].graph,
      {.target = "mt_rms_norm", .floats = {{"epsilon", epsilon_}, {"factor", factor}}}, operands,
      {type})[0];
}

}  // namespace mt::layers
