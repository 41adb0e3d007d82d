// How a token is chosen from logits, on the device, each row by its own settings. A row's result
// depends on its own logits, settings and key alone; its token is always one of the vocabulary.
#pragma once

#include "ir/ops.h"
#include "serve/sampling.h"

namespace mt::serve {

struct Chosen {
  ir::Value token_b;     // s32 [B]
  ir::Value log_prob_b;  // f32 [B], under the distribution as the model gave it; NaN if any of the
                         // row's logits is not finite
};

// logits f32 [B, V]. `cpu_kernels`: by mt_greedy (kernels/kernels.h).
Chosen greedy(ir::Value logits_bv, bool cpu_kernels = false);
// By settings f32 [B, kSettings] and keys u32 [B, 2], from the adjusted logits. A row that is
// greedy and not adjusted gets greedy()'s result to the bit, as without neighbours. `cpu_kernels`:
// by mt_sample.
Chosen sample(ir::Value logits_bv, ir::Value adjusted_bv, ir::Value settings_bn, ir::Value keys_b2,
              bool cpu_kernels = false);

// The logits with the bias and the penalties of the rows that have any (kAdjusts).
ir::Value adjust(ir::Value logits_bv, ir::Value settings_bn, ir::Value seen_bv, ir::Value bias_bv);
// seen [B, V] with each row's token noted as one of the output.
ir::Value note(ir::Value seen_bv, ir::Value token_b);

// The `count` (s32 scalar, kMostTopLogProbs at most) most likely tokens, the first of equals first:
// s32 and f32 [B, kMostTopLogProbs], of which the first `count` mean something.
struct Alternatives {
  ir::Value token_bn, log_prob_bn;
};
Alternatives most_likely(ir::Value logits_bv, ir::Value count);

// log p of one token a row, f32 [B].
ir::Value log_prob_of(ir::Value logits_bv, ir::Value token_b);

}  // namespace mt::serve
