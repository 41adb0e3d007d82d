// How a token is chosen from logits, on the device, each row by its own settings.
#pragma once

#include <cstdint>
#include <string_view>

#include "ir/ops.h"

namespace mt::serve {

// One request's settings. The order is MaxText's composite: top-k, then nucleus, then temperature.
struct Sampling {
  float temperature = 0;  // 0: the most likely token (greedy)
  int32_t top_k = 0;      // only the k most likely; 0: all. Equals of the last are kept too
  float nucleus_p = 0;    // only the most likely that together reach p; 0 or 1: all
  uint64_t seed = 0;
};

// The same, a value a row.
struct SamplingInputs {
  ir::Value temperature_b;  // f32 [B]
  ir::Value top_k_b;        // s32 [B]
  ir::Value nucleus_p_b;    // f32 [B]
  ir::Value keys_b2;        // u32 [B, 2], of the request's seed and the token's position
};

struct Chosen {
  ir::Value token_b;     // s32 [B]
  ir::Value log_prob_b;  // f32 [B], under the distribution as the model gave it
};

// logits f32 [B, V]. A row's token depends on its own logits, settings and key alone.
Chosen greedy(ir::Value logits_bv);
Chosen sample(ir::Value logits_bv, const SamplingInputs& inputs);

}  // namespace mt::serve
