// Attention over whole sequences: the plain form, which holds all scores, and the blockwise form
// ("flash", Dao 2023), which holds one block of queries against the keys they can see.
//
// q [B, L, N, H] is already scaled; k, v [B, L, K, H]; N = K * G, query head = k * G + g.
// segment_ids s32 [B, L]: a query sees keys of its own segment, itself and earlier, at most
// `window` of them (0: no window). Scores and softmax are float32. Result [B, L, N, H] in v's
// dtype.
#pragma once

#include "ir/ops.h"

namespace mt::layers {

struct AttentionMask {
  ir::Value segment_ids_bl;
  int64_t window = 0;
};

// Of a masked score: far below every real one, and finite (MaxText's).
inline constexpr double kMaskValue = -0.7 * 3.4028234663852886e38;

ir::Value dot_product_attention(ir::Value q_blnh, ir::Value k_blkh, ir::Value v_blkh,
                                const AttentionMask& mask);

struct FlashOptions {
  int64_t block_q = 512;  // queries a block, at most (sa_block_q)
};

// The same function, a block of queries at a time: memory grows with L * block_q (times the window,
// where there is one longer than a block), what no query of a block sees is skipped, and the
// backward pass computes scores again. Tags its result "context".
ir::Value flash_attention(ir::Value q_blnh, ir::Value k_blkh, ir::Value v_blkh,
                          const AttentionMask& mask, const FlashOptions& options);

}  // namespace mt::layers
