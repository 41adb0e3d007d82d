// Attention of new tokens over a cache (layers/kv_cache.h) and themselves, as a plain function on
// all threads of a pool: what the FFI handler calls.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "kernels/products.h"

namespace mt::kernels {

struct CacheAttention {
  int64_t rows = 0, tokens = 1, heads = 0, kv_heads = 0, capacity = 0, head_dim = 0;
  int64_t window = 0;              // a token sees so many positions up to its own; 0: all
  DType dtype = DType::kF32;       // of q, k, v and context: kF32, kBF16 or kF16
  const void* q = nullptr;         // [rows, tokens, heads, head_dim], scaled
  const void* k = nullptr;         // [rows, tokens, kv_heads, head_dim]
  const void* v = nullptr;         // [rows, tokens, kv_heads, head_dim]
  std::span<const int32_t> start;  // [rows]: tokens that the row has already, 0 or more
  std::span<const int32_t> count;  // [rows]: new ones, the first 0 to `tokens`; the rest is padding
  DType cache_dtype = DType::kF32;  // kF32, kBF16, kF16 or kS8
  void* keys = nullptr;             // [rows, kv_heads, capacity, head_dim]
  void* values = nullptr;           //
  float* key_scales = nullptr;      // [rows, kv_heads, capacity, 1], of kS8 only
  float* value_scales = nullptr;    //
  void* context = nullptr;          // [rows, tokens, heads, head_dim]; zeros for padding
};

// Each new token, rounded to the cache's dtype, goes to entry position mod capacity, and attends to
// those before it and itself. Scores, softmax and sums are float32; results don't depend on the
// number of threads, nor, for up to kFewRows tokens, on how many come at once. The ring must hold
// what the last of the tokens sees and what the first does, or the latter is lost. Throws kShape
// for a start or count out of range.
void cache_attention(const Engine& engine, const CacheAttention& a);

}  // namespace mt::kernels
