#include "train/flops.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mt::train {
namespace {

using models::gemma3::Gemma3Config;

Gemma3Config size(int64_t layers, int64_t d, int64_t n, int64_t k, int64_t h, int64_t f,
                  int64_t window) {
  return {.num_decoder_layers = layers,
          .emb_dim = d,
          .num_query_heads = n,
          .num_kv_heads = k,
          .head_dim = h,
          .mlp_dim = f,
          .sliding_window_size = window};
}

const Gemma3Config k4b = size(34, 2560, 8, 4, 256, 10240, 1024);

TEST(Flops, FiveSizesAtBatchFourLength4096) {
  struct Row {
    Gemma3Config model;
    double total;  // MaxText 0.2.5's form
    double weight_percent;
  };
  const std::vector<Row> rows = {
      {size(18, 640, 4, 1, 256, 2048, 512), 29.04, 90.75},
      {size(26, 1152, 4, 1, 256, 6912, 512), 102.05, 96.30},
      {k4b, 395.98, 96.32},
      {size(48, 3840, 16, 8, 256, 15360, 1024), 1198.61, 96.49},
      {size(62, 5376, 32, 16, 128, 21504, 1024), 2708.97, 98.01},
  };
  for (const Row& row : rows) {
    const StepFlops flops = step_flops(row.model, 4, 4096);
    EXPECT_NEAR(flops.total(), row.total, 0.005);
    EXPECT_NEAR(100 * flops.weight_tflops / flops.total(), row.weight_percent, 0.005);
  }
}

// cases.md, section 0: gemma3-4b at batch 1 by length.
TEST(Flops, AttentionAndWeightsByLength) {
  struct Row {
    int64_t length;
    double attention, weights, total;
  };
  const std::vector<Row> rows = {{1024, .438, 23.837, 24.275},
                                 {2048, 1.379, 47.674, 49.053},
                                 {4096, 3.646, 95.348, 98.995},
                                 {8192, 9.728, 190.697, 200.425}};
  for (const Row& row : rows) {
    const StepFlops flops = step_flops(k4b, 1, row.length);
    EXPECT_NEAR(flops.attention_tflops, row.attention, 0.0006);
    EXPECT_NEAR(flops.weight_tflops, row.weights, 0.0006);
    EXPECT_NEAR(flops.total(), row.total, 0.0006);
  }
}

TEST(Flops, AccumulationAndBatchMultiply) {
  const double one = step_flops(k4b, 1, 1024).total();
  EXPECT_NEAR(step_flops(k4b, 1, 1024, 3).total(), 3 * one, 1e-9);
  EXPECT_NEAR(step_flops(k4b, 0.5, 1024).total(), 0.5 * one, 1e-9);
}

}  // namespace
}  // namespace mt::train
