#include "models/gemma3/source_numbers.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace mt::models::gemma3 {

double number_of(const Gemma3Config& config, std::string_view ours) {
  if (ours == "num_decoder_layers") return static_cast<double>(config.num_decoder_layers);
  if (ours == "emb_dim") return static_cast<double>(config.emb_dim);
  if (ours == "mlp_dim") return static_cast<double>(config.mlp_dim);
  if (ours == "num_query_heads") return static_cast<double>(config.num_query_heads);
  if (ours == "num_kv_heads") return static_cast<double>(config.num_kv_heads);
  if (ours == "head_dim") return static_cast<double>(config.head_dim);
  if (ours == "sliding_window_size") return static_cast<double>(config.sliding_window_size);
  if (ours == "normalization_layer_epsilon") return config.normalization_layer_epsilon;
  if (ours == "rope_max_timescale") return config.rope_max_timescale;
  if (ours == "local_rope_max_timescale") return config.local_rope_max_timescale;
  if (ours == "rope_linear_scaling_factor") return config.rope_linear_scaling_factor;
  MT_CHECK(ours == "query_pre_attn_scalar");
  return config.query_pre_attn_scalar == 0 ? static_cast<double>(config.head_dim)
                                           : config.query_pre_attn_scalar;
}

void check_source_numbers(const std::vector<SourceNumber>& numbers, const Gemma3Config& run) {
  constexpr double kFloat32 = 1e-6;
  for (const SourceNumber& number : numbers) {
    const double ours = number_of(run, number.ours);
    const double size = std::max(std::abs(ours), std::abs(number.value));
    if (std::isfinite(number.value) && std::abs(ours - number.value) <= kFloat32 * size) continue;
    throw fail(ErrorKind::kConfig, "{} is {}, but the run has {}={}: they don't belong together",
               number.place, number.value, number.ours, ours);
  }
}

}  // namespace mt::models::gemma3
