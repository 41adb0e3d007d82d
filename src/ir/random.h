// Counter-based random numbers inside a program: threefry2x32 with 20 rounds (Salmon et al., SC
// 2011) in the element-indexed form, so that element i depends on the key and i alone: the same
// numbers on any mesh, bit for bit. base/random.h computes the same bits on the host.
#pragma once

#include "ir/ops.h"

namespace mt::ir {

// A key is a u32[2] value, or a batch of them, u32[..., 2]: results then have the batch's
// dimensions in front, and each key's numbers are those it gives alone.
Value key_from_seed(Graph& graph, uint64_t seed);
Value fold_in(Value key, uint32_t data);
Value fold_in(Value key, Value data);  // data: u32 or s32, a scalar or one a key of the batch

Value random_bits(Value key, const Shape& shape);                              // u32
Value random_uniform(Value key, const Shape& shape, double low, double high);  // f32 in [low, high)
Value random_normal(Value key, const Shape& shape);                            // f32, N(0, 1)
Value random_truncated_normal(Value key,
                              const Shape& shape);  // f32, N(0, 1) cut at +-2, not rescaled
Value random_integers(Value key, const Shape& shape, uint32_t bound);       // s32 in [0, bound)
Value random_bernoulli(Value key, const Shape& shape, double probability);  // pred

// Inverse of the error function on (-1, 1), float32 (M. Giles, "Approximating the erfinv
// function").
Value erf_inv(Value x);

}  // namespace mt::ir
