// Rotary position embedding (Su et al. 2021), half-split: the two halves of a head are the pairs.
#pragma once

#include "ir/ops.h"

namespace mt::layers {

struct RopeTable {
  ir::Value cos_blh, sin_blh;  // [B, L, H/2] in the activation dtype
};

// angle = position / (theta^(2j/H) * factor), j in [0, H/2), in float32.
RopeTable rope_table(ir::Value positions_bl, int64_t head_dim, double theta, double factor,
                     DType dtype);
// x [B, L, heads, H] -> (a cos - b sin, b cos + a sin).
ir::Value apply_rope(ir::Value x_blnh, const RopeTable& table);

}  // namespace mt::layers
