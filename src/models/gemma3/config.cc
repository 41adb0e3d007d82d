#include "models/gemma3/config.h"

namespace mt::models::gemma3 {

int64_t Gemma3Config::parameter_count() const {
  const int64_t d = emb_dim, n = num_query_heads, k = num_kv_heads, h = head_dim, f = mlp_dim;
  const int64_t attention = d * (n + 2 * k) * h + n * h * d + 2 * h;
  return vocab_size * d + d + num_decoder_layers * (attention + 3 * d * f + 4 * d);
}

}  // namespace mt::models::gemma3
