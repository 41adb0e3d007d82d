#include "train/flops.h"

#include <algorithm>

namespace mt::train {
namespace {

constexpr double kTera = 1e12;
constexpr double kForwardAndBackward = 3;  // a backward pass costs two forward passes

}  // namespace

StepFlops step_flops(const models::gemma3::Gemma3Config& model, double per_device_batch_size,
                     int64_t max_target_length, int64_t gradient_accumulation_steps) {
  const auto d = static_cast<double>(model.emb_dim), f = static_cast<double>(model.mlp_dim);
  const auto n = static_cast<double>(model.num_query_heads),
             h = static_cast<double>(model.head_dim);
  const auto k = static_cast<double>(model.num_kv_heads), v = static_cast<double>(model.vocab_size);
  const auto layers = static_cast<double>(model.num_decoder_layers);
  const auto length = static_cast<double>(max_target_length);
  const double tokens = per_device_batch_size * length;

  const double mlp = 2 * tokens * d * f * 3;
  const double projections = 2 * tokens * d * h * (n + 2 * k) + 2 * tokens * d * n * h;
  const double weights = (mlp + projections) * layers + 2 * tokens * d * v;

  // Query-key pairs that the masks let through, by area (S^2/2 for a causal layer).
  const double window = std::min(static_cast<double>(model.sliding_window_size), length);
  const double global_pairs = length * length / 2;
  const double local_pairs = length * window - window * window / 2;
  const auto global_layers =
      static_cast<double>(model.num_decoder_layers / models::gemma3::kPattern);
  const double pairs = global_layers * global_pairs + (layers - global_layers) * local_pairs;
  const double attention = 4 * per_device_batch_size * pairs * n * h;

  const double scale =
      kForwardAndBackward * static_cast<double>(gradient_accumulation_steps) / kTera;
  return {.attention_tflops = attention * scale, .weight_tflops = weights * scale};
}

}  // namespace mt::train
