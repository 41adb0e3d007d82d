#include "layers/embedding.h"

#include <cmath>

#include "layers/stored_weight.h"
#include "sharding/axes.h"

namespace mt::layers {

namespace axes = sharding::axes;

Embed::Embed(int64_t vocab_size, int64_t emb_dim, DType dtype, DType weight_dtype,
             std::shared_ptr<const nnx::Partitioner> partitioner)
    : embedding(nnx::param(weight_dtype, {vocab_size, emb_dim},
                           {std::string(axes::vocab), std::string(axes::embed)},
                           nnx::initializers::normal(1.0))),
      dtype_(dtype),
      emb_dim_(emb_dim),
      partitioner_(std::move(partitioner)) {}

ir::Value Embed::operator()(ir::Value tokens_bl) const {
  ir::Value rows;
  if (!embedding.stored) {
    rows = ir::take_rows(embedding.value, tokens_bl);
  } else {
    rows = take_stored_rows(embedding, tokens_bl, DType::kF32);
    if (!embedding.stored->multiplied) rows = rows * scale();
  }
  return partitioner_->constrain(ir::cast(rows, dtype_),
                                 {axes::activation_embed_and_logits_batch,
                                  axes::activation_norm_length, axes::activation_embed});
}

// sqrt(D) in the activation's dtype, as the table of a file is multiplied when it is read.
double Embed::scale() const {
  const auto exact = static_cast<float>(std::sqrt(static_cast<double>(emb_dim_)));
  if (dtype_ == DType::kBF16) return static_cast<double>(BFloat16::from_float(exact).to_float());
  return static_cast<double>(exact);
}

ir::Value Embed::attend(ir::Value x_bld) const {
  const auto constrain = [&](ir::Value logits) {
    return partitioner_->constrain(
        logits, {axes::activation_embed_and_logits_batch, axes::activation_length_no_exp,
                 axes::activation_vocab});
  };
  const double divisor = std::sqrt(static_cast<double>(emb_dim_));
  if (embedding.stored) {
    const ir::Value logits = multiply_stored(ir::cast(x_bld, DType::kF32), {&embedding})[0];
    return constrain(embedding.stored->multiplied ? logits * (1 / divisor) : logits);
  }
  const ir::Value table = ir::cast(embedding.value, x_bld.dtype());
  const ir::Value logits = ir::einsum("bld,vd->blv", x_bld, table, DType::kF32);
  return constrain(logits * (1 / divisor));
}

}  // namespace mt::layers
