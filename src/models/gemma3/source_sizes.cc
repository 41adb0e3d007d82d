#include "models/gemma3/source_sizes.h"

#include <utility>

#include "base/error.h"

namespace mt::models::gemma3 {

void check_source_sizes(const Gemma3Config& config, std::string_view where) {
  constexpr int64_t kMost = int64_t{1} << 24;  // far beyond any model; products stay in 64 bits
  for (const auto& [what, size] :
       {std::pair{"number of layers", config.num_decoder_layers},
        std::pair{"embedding size", config.emb_dim},
        std::pair{"number of query heads", config.num_query_heads},
        std::pair{"number of kv heads", config.num_kv_heads},
        std::pair{"head size", config.head_dim}, std::pair{"mlp size", config.mlp_dim},
        std::pair{"vocabulary size", config.vocab_size},
        std::pair{"sliding window", config.sliding_window_size}}) {
    if (size < 1 || size > kMost) {
      throw fail(ErrorKind::kConfig, "{}: {} is {}, expected 1 to {}", where, what, size, kMost);
    }
  }
  if (config.num_query_heads % config.num_kv_heads != 0) {
    throw fail(ErrorKind::kConfig, "{}: {} query heads don't divide among {} kv heads", where,
               config.num_query_heads, config.num_kv_heads);
  }
  if (config.head_dim % 2 != 0) {
    throw fail(ErrorKind::kConfig, "{}: head size {} is odd", where, config.head_dim);
  }
}

}  // namespace mt::models::gemma3
