// RMSNorm (Zhang and Sennrich 2019): x / sqrt(mean(x^2) + epsilon) * scale, in float32, rounded
// once.
#pragma once

#include "layers/rope.h"
#include "nnx/module.h"

namespace mt::layers {

class RMSNorm final : public nnx::Module {
 public:
  RMSNorm(int64_t features, double epsilon, DType weight_dtype);
  void visit(nnx::Visitor& v) override { v("scale", scale); }
  ir::Value operator()(ir::Value x) const;  // over the last axis; keeps x's dtype
  // x [B, L, heads, H] normed, then turned by the table, then times `factor`.
  ir::Value with_rope(ir::Value x_blnh, const RopeTable& table, double factor) const;

  nnx::Variable scale;      // [features], ones; Gemma's 1 + w is stored as one number
  bool cpu_kernel = false;  // by mt_rms_norm (kernels/kernels.h), which has no gradient

 private:
  ir::Value call_kernel(std::vector<ir::Value> operands, double factor) const;
  double epsilon_;
};

}  // namespace mt::layers
