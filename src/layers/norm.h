// RMSNorm (Zhang and Sennrich 2019): x / sqrt(mean(x^2) + epsilon) * scale, in float32, rounded
// once.
#pragma once

#include "nnx/module.h"

namespace mt::layers {

class RMSNorm final : public nnx::Module {
 public:
  RMSNorm(int64_t features, double epsilon, DType weight_dtype);
  void visit(nnx::Visitor& v) override { v("scale", scale); }
  ir::Value operator()(ir::Value x) const;  // over the last axis; keeps x's dtype

  nnx::Variable scale;  // [features], ones; Gemma's 1 + w is stored as one number

 private:
  double epsilon_;
};

}  // namespace mt::layers
