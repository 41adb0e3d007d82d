// The gated MLP: wo(gelu_tanh(x wi_0) * (x wi_1)).
#pragma once

#include <memory>

#include "layers/dropout.h"
#include "layers/linear.h"
#include "nnx/partition.h"

namespace mt::layers {

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), Hendrycks and Gimpel 2016.
ir::Value gelu_tanh(ir::Value x);

class MlpBlock final : public nnx::Module {
 public:
  MlpBlock(int64_t emb_dim, int64_t mlp_dim, double dropout_rate, DType weight_dtype,
           std::shared_ptr<const nnx::Partitioner> partitioner);
  void visit(nnx::Visitor& v) override;
  ir::Value operator()(ir::Value x_bld, nnx::Rngs* rngs) const;

  DenseGeneral wi_0, wi_1, wo;

 private:
  double dropout_rate_;
  std::shared_ptr<const nnx::Partitioner> partitioner_;
};

}  // namespace mt::layers
