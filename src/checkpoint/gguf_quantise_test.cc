#include "checkpoint/gguf_quantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "checkpoint/gguf_blocks.h"

namespace mt::checkpoint {
namespace {

struct Kind {
  const char* name;
  float low, high;  // whole steps that a value may be
};
constexpr Kind kQ8{"Q8_0", -127, 127}, kQ4{"Q4_0", -8, 7};

struct Result {
  bool done = false;
  std::vector<float> values, scales;  // decoded; one a block
};

Result round_trip(const Kind& kind, const std::vector<float>& x) {
  const BlockFormat& format = *find_block_format(std::string_view(kind.name));
  const auto blocks = static_cast<int64_t>(x.size()) / format.elements;
  const auto bytes = static_cast<size_t>(blocks * format.bytes);
  std::vector<std::byte> stored(bytes + 1, std::byte{0x5a});  // one behind the last block
  Result r;
  r.done = format.from_float(x.data(), blocks, stored.data());
  EXPECT_EQ(stored.back(), std::byte{0x5a});
  if (!r.done) return r;
  r.values.resize(x.size());
  format.to_float(stored.data(), blocks, r.values.data());
  for (int64_t b = 0; b < blocks; ++b) {
    Float16 scale;
    std::memcpy(&scale.bits, stored.data() + b * format.bytes, 2);
    r.scales.push_back(scale.to_float());
  }
  return r;
}

std::vector<float> gaussian(size_t count, float size, uint32_t seed) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> draw(0, size);
  std::vector<float> x(count);
  for (float& v : x) v = draw(bits);
  return x;
}

double squared_error(const std::vector<float>& x, const std::vector<float>& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i)
    sum += std::pow(static_cast<double>(x[i]) - double{y[i]}, 2);
  return sum;
}

// Sizes from the least subnormal to the largest that a block holds.
TEST(Quantise, Q8_0StaysWithinHalfAStep) {
  for (const float size : {1e-44F, 1e-39F, 3e-8F, 1e-7F, 1e-6F, 1e-5F, 0.02F, 1.0F, 3e4F, 1.5e6F}) {
    const auto x = gaussian(32 * 100, size, 1);
    const Result r = round_trip(kQ8, x);
    ASSERT_TRUE(r.done) << size;
    for (size_t i = 0; i < x.size(); ++i) {
      const float step = r.scales[i / 32];
      ASSERT_LE(std::abs(x[i] - r.values[i]), step * 0.50001F) << size << " at " << i;
    }
    if (size < 1e-4F) continue;  // scales there are few multiples of 2^-24
    for (size_t b = 0; b < 100; ++b) {
      float largest = 0;
      for (size_t i = 0; i < 32; ++i) largest = std::max(largest, std::abs(x[b * 32 + i]));
      ASSERT_NEAR(r.scales[b], largest / 127, largest / 127 * 0.05F) << size;
    }
  }
}

// ggml's rule is the scale (largest magnitude / -8) alone.
TEST(Quantise, Q4_0IsWithinHalfAStepButAtTheEndsAndNearerThanGgmls) {
  double ours = 0, ggml = 0, size_of_all = 0;
  for (const float size : {1e-44F, 1e-7F, 1e-5F, 0.02F, 1.0F, 8e4F}) {
    const auto x = gaussian(32 * 100, size, 2);
    const Result r = round_trip(kQ4, x);
    ASSERT_TRUE(r.done) << size;
    std::vector<float> simple(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const float step = r.scales[i / 32], steps = r.values[i] / (step == 0 ? 1 : step);
      const auto* block = x.data() + i / 32 * 32;
      const float extreme = *std::max_element(
          block, block + 32, [](float a, float b) { return std::abs(a) < std::abs(b); });
      const float scale = Float16::from_float(extreme / -8).to_float();
      simple[i] = std::clamp(std::rint(x[i] / scale), -8.0F, 7.0F) * scale;
      if (steps == -8 || steps == 7) {
        ASSERT_LE(std::abs(x[i] - r.values[i]), std::abs(step) * 3.01F) << size << " at " << i;
      } else {
        ASSERT_LE(std::abs(x[i] - r.values[i]), std::abs(step) * 0.50001F) << size << " at " << i;
      }
    }
    if (size < 1e-5F) continue;
    const double scaled = 1.0 / static_cast<double>(size * size);
    ours += squared_error(x, r.values) * scaled;
    ggml += squared_error(x, simple) * scaled;
    size_of_all += squared_error(x, std::vector<float>(x.size())) * scaled;
  }
  std::printf("Q4_0: squared error %.4f %% of the values', ggml's rule %.4f %%\n",
              100 * ours / size_of_all, 100 * ggml / size_of_all);
  EXPECT_LT(ours, 0.93 * ggml);
}

TEST(Quantise, WhatIsOnAGridThatReachesItsEndIsExact) {
  std::mt19937 bits(3);
  for (const Kind& kind : {kQ8, kQ4}) {
    for (int round = 0; round < 200; ++round) {
      const float step =
          Float16::from_float(0.001F * static_cast<float>(1 + bits() % 5000)).to_float();
      std::vector<float> x(32);
      for (float& v : x) {
        const int span = static_cast<int>(kind.high - kind.low) + 1;
        v = (static_cast<float>(bits() % static_cast<uint32_t>(span)) + kind.low) * step;
      }
      x[bits() % 32] = (round % 2 == 0 ? kind.low : kind.high) * step;
      const Result r = round_trip(kind, x);
      ASSERT_TRUE(r.done);
      ASSERT_EQ(r.values, x) << kind.name << " step " << step;
    }
  }
}

TEST(Quantise, Zeros) {
  for (const Kind& kind : {kQ8, kQ4}) {
    const std::vector<float> zeros(64, 0.0F);
    EXPECT_EQ(round_trip(kind, zeros).values, zeros) << kind.name;
    std::vector<float> negative(64, -0.0F);
    negative[40] = 1;  // one block of zeros, one with a value
    const Result r = round_trip(kind, negative);
    EXPECT_EQ(r.scales[0], 0) << kind.name;
    EXPECT_NEAR(r.values[40], 1, 1e-3) << kind.name;
    EXPECT_EQ(r.values[41], 0) << kind.name;
  }
}

// Wherever in the last block, and not before it.
TEST(Quantise, RefusesWhatABlockCantHold) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Kind& kind : {kQ8, kQ4}) {
    for (const float bad : {infinity, -infinity, std::nanf(""), 65504.0F * 128, -3e38F}) {
      for (const size_t at : {size_t{0}, size_t{31}, size_t{32}, size_t{95}}) {
        std::vector<float> x(96, 0.5F);
        x[at] = bad;
        EXPECT_FALSE(round_trip(kind, x).done) << kind.name << " " << bad << " at " << at;
      }
    }
  }
}

// One block by hand, so that the layout is also checked without the decoder's help.
TEST(Quantise, Q4_0ByHand) {
  std::vector<float> x(32, 0.0F);
  x[0] = -8;
  x[1] = 3;
  x[16] = 7;
  std::vector<std::byte> block(18);
  ASSERT_TRUE(quantise_q4_0(x.data(), 1, block.data()));
  EXPECT_EQ(block[0], std::byte{0x00});
  EXPECT_EQ(block[1], std::byte{0x3c});  // 1.0
  EXPECT_EQ(block[2], std::byte{0xf0});  // element 0: -8 is 0; element 16: 7 is 15
  EXPECT_EQ(block[3], std::byte{0x8b});
  EXPECT_EQ(block[17], std::byte{0x88});
}

}  // namespace
}  // namespace mt::checkpoint
