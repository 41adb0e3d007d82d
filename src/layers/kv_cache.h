// Keys and values of the tokens that a row has seen. A cache of capacity C is a ring: the token at
// position p lies in entry p mod C. Which position an entry holds follows from the row's length
// alone, so every mask is by position, whatever was in the entry before (a slot needs no clearing).
// A local layer keeps its window and no more; a global layer keeps all positions.
#pragma once

#include <memory>

#include "nnx/module.h"
#include "nnx/partition.h"

namespace mt::layers {

struct CacheConfig {
  int64_t rows = 0;            // 0: no cache
  int64_t length = 0;          // the longest row, in tokens
  DType dtype = DType::kBF16;  // or kF32, kF16, kS8: integers with a scale for each token and head
  int64_t ahead = 0;  // tokens that a pass may add and a later one take back (layers with a window)
  bool cpu_kernels = false;  // attention is mt_cache_attention (kernels/kernels.h)
};

class KVCache final : public nnx::Module {
 public:
  KVCache(const CacheConfig& config, int64_t capacity, int64_t num_kv_heads, int64_t head_dim);
  void visit(nnx::Visitor& v) override;
  int64_t capacity() const { return cached_key.type.shape[2]; }
  bool is_scaled() const { return cached_key.type.dtype == DType::kS8; }

  nnx::Variable cached_key, cached_value;  // [rows, K, C, H]
  std::unique_ptr<nnx::Variable> cached_key_scale,
      cached_value_scale;  // f32 [rows, K, C, 1], of kS8
  bool cpu_kernels = false;
};

// What a pass adds: T tokens a row. Row b holds `start[b]` tokens already; the first `count[b]` of
// the new ones are real, those behind them are padding.
struct CachePass {
  ir::Value start_b, count_b;  // s32 [B]
  int64_t tokens = 1;          // T
};

// A pass seen by the caches of one capacity and window, computed once for all layers of a kind.
struct CacheView {
  int64_t tokens = 1;
  ir::Value keep;              // pred [B, T, S]: T = 1: S = C, the ring with the new token in it;
                               // T > 1: S = C + T, the ring as it was and the new tokens
  ir::Value start_b, count_b;  // the pass's
  int64_t window = 0;
  ir::Value entry_b;    // T = 1: where the new token goes
  ir::Value is_new_bc;  // T > 1: pred [B, C], entries that a new token takes ...
  ir::Value source_bc;  // ... and its row among all B * T new ones
};
// window 0: none.
CacheView view_cache(const CachePass& pass, int64_t capacity, int64_t window);

// Attention of the new tokens, q [B, T, N, H] (scaled), k and v [B, T, K, H], over the cache and
// themselves; the cache's variables get their new values. Scores and softmax in float32; the result
// [B, T, N, H] has v's dtype.
ir::Value attend_cache(KVCache& cache, const CacheView& view, ir::Value q_btnh, ir::Value k_btkh,
                       ir::Value v_btkh);

}  // namespace mt::layers
