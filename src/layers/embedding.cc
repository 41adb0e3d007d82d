#include "layers/embedding.h"

#include <cmath>

#include "sharding/axes.h"

namespace mt::layers {

namespace axes = sharding::axes;

Embed::Embed(int64_t vocab_size, int64_t emb_dim, DType dtype, DType weight_dtype,
             std::shared_ptr<const nnx::Partitioner> partitioner)
    : embedding(nnx::param(weight_dtype, {vocab_size, emb_dim},
                           {std::string(axes::vocab), std::string(axes::embed)},
                           nnx::initializers::normal(1.0))),
      dtype_(dtype),
      partitioner_(std::move(partitioner)) {}

ir::Value Embed::operator()(ir::Value tokens_bl) const {
  const ir::Value rows = ir::cast(ir::take_rows(embedding.value, tokens_bl), dtype_);
  return partitioner_->constrain(rows, {axes::activation_embed_and_logits_batch,
                                        axes::activation_norm_length, axes::activation_embed});
}

ir::Value Embed::attend(ir::Value x_bld) const {
  const ir::Value table = ir::cast(embedding.value, x_bld.dtype());
  const ir::Value logits = ir::einsum("bld,vd->blv", x_bld, table, DType::kF32);
  const double scale = 1 / std::sqrt(static_cast<double>(embedding.type.shape[1]));
  return partitioner_->constrain(
      logits * scale, {axes::activation_embed_and_logits_batch, axes::activation_length_no_exp,
                       axes::activation_vocab});
}

}  // namespace mt::layers
