// The layers' formulas on the CPU plugin, against double precision on the host.
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "layers/attention.h"
#include "layers/dropout.h"
#include "layers/mlp.h"
#include "layers/norm.h"
#include "layers/remat_policy.h"
#include "layers/rope.h"
#include "support/run_graph.h"

namespace mt::layers {
namespace {

using ir::Value;
using testing::error_of;
using testing::run;
using testing::values_of;

std::vector<float> random_values(size_t count, uint64_t seed, float scale) {
  std::vector<float> out;
  for (size_t i = 0; i < count; ++i) {
    out.push_back((static_cast<float>(random_bits_at(random_key(seed), i)) * 0x1p-31F - 1) * scale);
  }
  return out;
}

double ulp_bf16(double x) { return std::exp2(std::floor(std::log2(std::abs(x))) - 7); }

// A6: float32 inside, rounded once at the end.
TEST(RMSNorm, IsWithinOneUlpInBfloat16) {
  constexpr int64_t kRows = 8, kFeatures = 256;
  ir::Graph graph;
  const Value x = graph.parameter({DType::kBF16, {kRows, kFeatures}}, "x");
  RMSNorm norm(kFeatures, 1e-6, DType::kF32);
  norm.scale.value = ir::full(graph, DType::kF32, {kFeatures}, 1.3);
  graph.outputs = {norm(x)};
  const Tensor input =
      Tensor::of<float>(DType::kF32, {kRows, kFeatures}, random_values(kRows * kFeatures, 1, 3))
          .cast(DType::kBF16);
  const Tensor in = input.cast(DType::kF32), out = run(graph, {input})[0].cast(DType::kF32);
  EXPECT_EQ(graph.outputs[0].dtype(), DType::kBF16);
  for (size_t r = 0; r < kRows; ++r) {
    double squares = 0;
    for (size_t i = 0; i < kFeatures; ++i) {
      squares += std::pow(static_cast<double>(in.data<float>()[r * kFeatures + i]), 2);
    }
    const double inverse = 1 / std::sqrt(squares / kFeatures + 1e-6);
    for (size_t i = 0; i < kFeatures; ++i) {
      const double expected =
          static_cast<double>(in.data<float>()[r * kFeatures + i]) * inverse * 1.3;
      const auto found = static_cast<double>(out.data<float>()[r * kFeatures + i]);
      EXPECT_LE(std::abs(found - expected), 0.51 * ulp_bf16(expected)) << r << ", " << i;
    }
  }
}

TEST(RMSNorm, TinyAndHugeRows) {
  ir::Graph graph;
  const Value x = graph.parameter({DType::kF32, {3, 2}}, "x");
  RMSNorm norm(2, 1e-6, DType::kF32);
  norm.scale.value = ir::full(graph, DType::kF32, {2}, 1);
  graph.outputs = {norm(x)};
  const auto out = values_of<float>(
      run(graph, {Tensor::of<float>(DType::kF32, {3, 2}, {0, 0, 1e-3F, 1e-3F, 1e15F, -1e15F})})[0]);
  const auto half = static_cast<float>(std::sqrt(0.5));
  EXPECT_EQ(out[0], 0);
  EXPECT_NEAR(out[2], half, 1e-6F);
  EXPECT_NEAR(out[4], 1, 1e-6F);
  EXPECT_NEAR(out[5], -1, 1e-6F);
}

// A7: the tanh form; the exact one gives 0.8413447 at 1.
TEST(Gelu, IsTheTanhForm) {
  ir::Graph graph;
  graph.outputs = {gelu_tanh(graph.parameter({DType::kF32, {5}}, "x"))};
  const auto out =
      values_of<float>(run(graph, {Tensor::of<float>(DType::kF32, {5}, {1, -1, 0, 10, -10})})[0]);
  EXPECT_NEAR(out[0], 0.8411920F, 1e-6F);
  EXPECT_NEAR(out[1], -0.1588080F, 1e-6F);
  EXPECT_EQ(out[2], 0);
  EXPECT_EQ(out[3], 10);
  EXPECT_NEAR(out[4], 0, 1e-6F);
}

struct RopeCase {
  double theta, factor;
};

TEST(Rope, AgreesWithDoublePrecision) {
  constexpr int64_t kHead = 16, kHalf = kHead / 2;
  const std::vector<int32_t> positions{0, 1, 5, 511, 4095};
  const auto length = static_cast<int64_t>(positions.size());
  const std::vector<float> values = random_values(static_cast<size_t>(length * 2 * kHead), 3, 1);
  for (const RopeCase c : {RopeCase{10'000, 1}, RopeCase{1'000'000, 8}}) {
    ir::Graph graph;
    const Value p = graph.parameter({DType::kS32, {1, length}}, "positions");
    const Value x = graph.parameter({DType::kF32, {1, length, 2, kHead}}, "x");
    graph.outputs = {apply_rope(x, rope_table(p, kHead, c.theta, c.factor, DType::kF32))};
    const auto out = values_of<float>(
        run(graph, {Tensor::of<int32_t>(DType::kS32, {1, length}, positions),
                    Tensor::of<float>(DType::kF32, {1, length, 2, kHead}, values)})[0]);
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t l = i / (2 * kHead), e = i % kHead, j = e % kHalf, first = i - e + j;
      const double angle =
          positions[l] / (std::pow(c.theta, 2.0 * static_cast<double>(j) / kHead) * c.factor);
      const auto a = static_cast<double>(values[first]),
                 b = static_cast<double>(values[first + kHalf]);
      const double expected = e < kHalf ? a * std::cos(angle) - b * std::sin(angle)
                                        : b * std::cos(angle) + a * std::sin(angle);
      // An angle is a float32: wrong by up to 2^-24 of itself.
      EXPECT_NEAR(static_cast<double>(out[i]), expected, 1e-6 + angle * 0x1p-22) << i;
    }
  }
}

Tensor seed_key(uint32_t seed) { return Tensor::of<uint32_t>(DType::kU32, {2}, {0, seed}); }

TEST(Dropout, OneMaskAlongTheLengthAndTheRightShare) {
  constexpr int64_t kRows = 40, kLength = 5, kWidth = 50;
  ir::Graph graph;
  nnx::Rngs rngs(graph.parameter({DType::kU32, {2}}, "key"));
  const Value ones = ir::full(graph, DType::kF32, {kRows, kLength, kWidth}, 1);
  const Value first = dropout(ones, 0.25, &rngs), second = dropout(ones, 0.25, &rngs);
  graph.outputs = {first, second};
  const testing::Program program(graph);
  const std::vector<Tensor> out = program({seed_key(7)});
  const auto values = values_of<float>(out[0]);
  int64_t kept = 0;
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t w = 0; w < kWidth; ++w) {
      const float top = values[r * kLength * kWidth + w];
      kept += top != 0 ? 1 : 0;
      EXPECT_TRUE(top == 0 || std::abs(top - 4.0F / 3) < 1e-6F) << top;
      for (size_t l = 1; l < kLength; ++l) {
        ASSERT_EQ(values[(r * kLength + l) * kWidth + w], top) << "one mask for the whole length";
      }
    }
  }
  // 2000 draws: five standard deviations are 97.
  EXPECT_NEAR(static_cast<double>(kept), 1500, 97);
  EXPECT_NE(values, values_of<float>(out[1])) << "each call has a mask of its own";
  EXPECT_NE(values, values_of<float>(program({seed_key(8)})[0]));
  EXPECT_EQ(values, values_of<float>(program({seed_key(7)})[0]));
}

TEST(Dropout, IsNothingWithoutRateOrStreams) {
  ir::Graph graph;
  nnx::Rngs rngs(graph.parameter({DType::kU32, {2}}, "key"));
  const Value x = graph.parameter({DType::kF32, {2, 3}}, "x");
  EXPECT_EQ(dropout(x, 0, &rngs), x);
  EXPECT_EQ(dropout(x, 0.5, nullptr), x);
}

TEST(Names, UnknownOnesAreRefusedWithTheKnownOnes) {
  EXPECT_EQ(error_of([] { parse_attention("splash"); }),
            "attention=splash: expected dot_product, flash or autoselected");
  const std::string policy = error_of([] { saved_tags("some"); });
  EXPECT_EQ(policy.find("remat_policy=some: expected one of none, full, minimal_with_context"), 0U)
      << policy;
  EXPECT_NE(error_of([] { saved_tags("minimal_offloaded"); }).find("isn't supported yet"),
            std::string::npos);
  EXPECT_EQ(saved_tags("minimal_flash"), saved_tags("minimal_with_context"));
  EXPECT_TRUE(saved_tags("full").empty());
}

}  // namespace
}  // namespace mt::layers
