#include "layers/mlp.h"

#include <cmath>

#include "sharding/axes.h"

namespace mt::layers {

namespace axes = sharding::axes;
using ir::Value;

Value gelu_tanh(Value x) {
  const double c = std::sqrt(2 / M_PI);
  return x * 0.5 * (ir::tanh((x + x * x * x * 0.044715) * c) + 1.0);
}

MlpBlock::MlpBlock(int64_t emb_dim, int64_t mlp_dim, double dropout_rate, DType weight_dtype,
                   std::shared_ptr<const nnx::Partitioner> partitioner)
    : wi_0("bld,df->blf", weight_dtype, {emb_dim, mlp_dim},
           {std::string(axes::embed), std::string(axes::mlp)},
           nnx::initializers::variance_scaling(emb_dim, true)),
      wi_1("bld,df->blf", weight_dtype, {emb_dim, mlp_dim},
           {std::string(axes::embed), std::string(axes::mlp)},
           nnx::initializers::variance_scaling(emb_dim, true)),
      wo("blf,fd->bld", weight_dtype, {mlp_dim, emb_dim},
         {std::string(axes::mlp), std::string(axes::embed)},
         nnx::initializers::variance_scaling(mlp_dim, true)),
      dropout_rate_(dropout_rate),
      partitioner_(std::move(partitioner)) {}

void MlpBlock::visit(nnx::Visitor& v) {
  v("wi_0", wi_0);
  v("wi_1", wi_1);
  v("wo", wo);
}

Value MlpBlock::operator()(Value x_bld, nnx::Rngs* rngs) const {
  const std::vector<Value> gate_up = project_together(x_bld, {&wi_0, &wi_1});
  const Value gate = ir::checkpoint_name(gate_up[0], "mlpwi_0");
  const Value up = ir::checkpoint_name(gate_up[1], "mlpwi_1");
  Value hidden = dropout(gelu_tanh(gate) * up, dropout_rate_, rngs);
  hidden = partitioner_->constrain(
      hidden, {axes::activation_batch, axes::activation_length_no_exp, axes::activation_mlp});
  return ir::checkpoint_name(wo(hidden), "mlpwo");
}

}  // namespace mt::layers
