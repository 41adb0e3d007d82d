// Sizes and numbers of one Gemma 3 model. Any size is allowed; the five published ones are
// configs/models/gemma3-*.yml.
#pragma once

#include <cstdint>

namespace mt::models::gemma3 {

inline constexpr int64_t kPattern = 6;  // layer i is global iff i % 6 == 5, else local sliding

struct Gemma3Config {
  int64_t num_decoder_layers = 0;
  int64_t emb_dim = 0;                       // D
  int64_t num_query_heads = 0;               // N
  int64_t num_kv_heads = 0;                  // K; divides N
  int64_t head_dim = 0;                      // H; even
  int64_t mlp_dim = 0;                       // F
  int64_t vocab_size = 262144;               // V
  int64_t sliding_window_size = 0;           // W keys, the query's own included
  double query_pre_attn_scalar = 0;          // queries are scaled by its -0.5 power; 0 = head_dim
  double rope_max_timescale = 1'000'000;     // theta of global layers
  double local_rope_max_timescale = 10'000;  // theta of local layers
  double rope_linear_scaling_factor = 1;     // divides the position on global layers
  double normalization_layer_epsilon = 1e-6;

  static bool is_global(int64_t layer) { return layer % kPattern == kPattern - 1; }
  int64_t scanned_blocks() const { return num_decoder_layers / kPattern; }
  int64_t remainder_layers() const { return num_decoder_layers % kPattern; }
  // Exact number of text parameters; the tied table counts once.
  int64_t parameter_count() const;
};

}  // namespace mt::models::gemma3
