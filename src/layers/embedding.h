// The token table, and the head that is tied to it. MaxText's convention: the table is stored
// already multiplied by sqrt(D), so lookups are plain and logits are divided by sqrt(D). A table
// that stays in a file's blocks is not multiplied: the factor is applied to what is looked up.
#pragma once

#include "nnx/module.h"
#include "nnx/partition.h"

namespace mt::layers {

class Embed final : public nnx::Module {
 public:
  Embed(int64_t vocab_size, int64_t emb_dim, DType dtype, DType weight_dtype,
        std::shared_ptr<const nnx::Partitioner> partitioner);
  void visit(nnx::Visitor& v) override { v("embedding", embedding); }
  ir::Value operator()(ir::Value tokens_bl) const;  // s32 [B, L] -> [B, L, D] in dtype
  ir::Value attend(ir::Value x_bld) const;          // -> float32 logits [B, L, V]

  nnx::Variable embedding;  // [V, D]

 private:
  double scale() const;

  DType dtype_;
  int64_t emb_dim_;
  std::shared_ptr<const nnx::Partitioner> partitioner_;
};

}  // namespace mt::layers
