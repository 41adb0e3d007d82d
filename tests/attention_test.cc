// flash attention against the plain form: values, gradients, memory, and what it does not touch.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostream>
#include <string>

#include "autodiff/vjp.h"
#include "base/random.h"
#include "layers/dot_product_attention.h"
#include "support/run_graph.h"

namespace mt::layers {
namespace {

using ir::Value;
using Values = std::vector<Value>;
using testing::Program;

constexpr int64_t kBatch = 2, kHead = 4;

Tensor random(const Shape& shape, uint64_t seed) {
  Tensor t(DType::kF32, shape);
  const RandomKey key = random_key(seed);
  for (size_t i = 0; i < static_cast<size_t>(t.size()); ++i) {
    t.mutable_data<float>()[i] =
        static_cast<float>(random_bits_at(key, i)) * 0x1p-31F - 1.0F;  // [-1, 1)
  }
  return t;
}

// Row 0 is one segment; row 1 has two of different length and a tail of padding.
Tensor packed_segments(int64_t length) {
  Tensor t(DType::kS32, {kBatch, length});
  for (int64_t i = 0; i < length; ++i) {
    t.mutable_data<int32_t>()[static_cast<size_t>(i)] = 1;
    const bool padding = i >= length - length / 6, second = i >= length / 3;
    t.mutable_data<int32_t>()[static_cast<size_t>(length + i)] = padding ? 0 : second ? 2 : 1;
  }
  return t;
}

struct Heads {
  int64_t query, kv;
};
void PrintTo(const Heads& heads, std::ostream* out) { *out << heads.query << ":" << heads.kv; }

struct Call {
  ir::Graph graph;
  Value q, k, v, segments, cotangent;

  Call(int64_t length, Heads heads, DType dtype = DType::kF32) {
    q = graph.parameter({dtype, {kBatch, length, heads.query, kHead}}, "q");
    k = graph.parameter({dtype, {kBatch, length, heads.kv, kHead}}, "k");
    v = graph.parameter({dtype, {kBatch, length, heads.kv, kHead}}, "v");
    segments = graph.parameter({DType::kS32, {kBatch, length}}, "segments");
    cotangent = graph.parameter({dtype, {kBatch, length, heads.query, kHead}}, "cotangent");
  }
  // Appends {context, dq, dk, dv}; block 0 is the plain form.
  void output(int64_t window, int64_t block) {
    const AttentionMask mask{segments, window};
    const Value out =
        block == 0 ? dot_product_attention(q, k, v, mask) : flash_attention(q, k, v, mask, {block});
    graph.outputs.push_back(out);
    for (const Value g : autodiff::vjp({out}, {cotangent}, {q, k, v})) graph.outputs.push_back(g);
  }
};

std::vector<Tensor> random_inputs(int64_t length, Heads heads, DType dtype = DType::kF32) {
  const Shape q{kBatch, length, heads.query, kHead}, kv{kBatch, length, heads.kv, kHead};
  return {random(q, 1).cast(dtype), random(kv, 2).cast(dtype), random(kv, 3).cast(dtype),
          packed_segments(length), random(q, 4).cast(dtype)};
}

// Largest difference over the largest value.
double difference(const Tensor& a, const Tensor& b) {
  const Tensor x = a.cast(DType::kF32), y = b.cast(DType::kF32);
  double worst = 0, scale = 0;
  for (size_t i = 0; i < static_cast<size_t>(x.size()); ++i) {
    const auto e = static_cast<double>(y.data<float>()[i]);
    const double d = std::abs(static_cast<double>(x.data<float>()[i]) - e);
    if (!(d <= worst)) worst = d;
    scale = std::max(scale, std::abs(e));
  }
  return worst / std::max(scale, 1e-3);
}

// Every window and block size of one length and one grouping in one program.
void expect_equal(int64_t length, Heads heads, const std::vector<int64_t>& blocks, DType dtype,
                  double tolerance) {
  constexpr const char* kNames[] = {"context", "dq", "dk", "dv"};
  const std::vector<int64_t> windows{0, 3, 8, length + 5};
  Call call(length, heads, dtype);
  for (const int64_t window : windows) {
    call.output(window, 0);
    for (const int64_t block : blocks) call.output(window, block);
  }
  const std::vector<Tensor> out = Program(call.graph)(random_inputs(length, heads, dtype));
  size_t at = 0;
  for (const int64_t window : windows) {
    const size_t plain = at;
    at += 4;
    for (const int64_t block : blocks) {
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_LE(difference(out[at++], out[plain + i]), tolerance)
            << kNames[i] << ", L=" << length << " N=" << heads.query << " K=" << heads.kv
            << " window=" << window << " block=" << block;
      }
    }
  }
}

// Blocks of 4 make 10 and 16 of 37 and 64 positions; with a block of 64 there is no loop.
class FlashEqualsPlain : public ::testing::TestWithParam<Heads> {};

TEST_P(FlashEqualsPlain, OneAndSevenPositions) {
  expect_equal(1, GetParam(), {8}, DType::kF32, 1e-5);
  expect_equal(7, GetParam(), {3, 16}, DType::kF32, 1e-5);
}
TEST_P(FlashEqualsPlain, ThirtySevenPositions) {
  expect_equal(37, GetParam(), {4, 16, 64}, DType::kF32, 1e-5);
}
TEST_P(FlashEqualsPlain, SixtyFourPositions) {
  expect_equal(64, GetParam(), {4, 16}, DType::kF32, 1e-5);
}
INSTANTIATE_TEST_SUITE_P(Groups, FlashEqualsPlain,
                         ::testing::Values(Heads{4, 1}, Heads{4, 2}, Heads{4, 4}),
                         [](const auto& test) {
                           return std::to_string(test.param.query) + "Over" +
                                  std::to_string(test.param.kv);
                         });

TEST(Flash, EqualsPlainInEightBlocks) { expect_equal(64, {2, 1}, {8}, DType::kF32, 1e-5); }

// Eight bits of mantissa: a few roundings apart.
TEST(Flash, EqualsPlainInBfloat16) { expect_equal(37, {4, 2}, {4, 16}, DType::kBF16, 2e-2); }

// A NaN in a value is seen by every query block that multiplies with its key block, even where the
// weight is 0. So results without NaN prove that the block was not touched.
void expect_untouched(int64_t length, int64_t block, int64_t window, int64_t poisoned_block,
                      int64_t first_clean, int64_t last_clean) {
  const Heads heads{2, 1};
  Call call(length, heads);
  call.output(window, block);
  std::vector<Tensor> inputs = random_inputs(length, heads);
  for (int32_t& s : inputs[3].mutable_data<int32_t>()) s = 1;
  Tensor& v = inputs[2];
  const auto kv_row = static_cast<size_t>(kHead);
  for (size_t b = 0; b < kBatch; ++b) {
    for (auto i = poisoned_block * block; i < (poisoned_block + 1) * block; ++i) {
      const size_t row = b * static_cast<size_t>(length) + static_cast<size_t>(i);
      v.mutable_data<float>()[row * kv_row] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  const std::vector<Tensor> out = Program(call.graph)(inputs);
  for (size_t result : {size_t{0}, size_t{1}}) {  // context and dq, both [B, L, N, H]
    int64_t clean = 0, poisoned = 0;
    for (int64_t i = 0; i < length; ++i) {
      const bool expect_clean = i >= first_clean && i < last_clean;
      bool has_nan = false;
      for (int64_t e = 0; e < heads.query * kHead; ++e) {
        has_nan |=
            std::isnan(out[result].data<float>()[static_cast<size_t>(i * heads.query * kHead + e)]);
      }
      if (expect_clean) {
        EXPECT_FALSE(has_nan) << "result " << result << ", row " << i;
      }
      ++(has_nan ? poisoned : clean);
    }
    EXPECT_EQ(clean, last_clean - first_clean) << "the other rows see the poison";
    EXPECT_EQ(poisoned, length - clean);
  }
}

TEST(Flash, SkipsKeyBlocksAboveTheDiagonal) {
  expect_untouched(32, 8, 0, 3, 0, 24);  // rows of blocks 0, 1, 2 never meet block 3
  expect_untouched(48, 4, 0, 11, 0, 44);
  expect_untouched(48, 4, 8, 11, 0, 44);  // nor with a window
}

TEST(Flash, SkipsKeyBlocksBeforeTheWindow) {
  // Window 8, blocks of 8: query block 2 (rows 16 to 23) reaches back to row 9, in block 1.
  expect_untouched(32, 8, 8, 0, 16, 32);
  // Blocks of 4: rows 12 and later reach back to row 5 at most.
  expect_untouched(48, 4, 8, 0, 12, 48);
}

int64_t temporaries(int64_t length, int64_t block, int64_t window = 0) {
  Call call(length, {2, 1});
  call.output(window, block);
  return Program(call.graph).executable().memory_stats().temporaries;
}

// Twice the length: the plain form takes four times the memory, forward and backward in blocks
// about twice, at every length and whatever the most rows of a block. (512: sa_block_q's default.)
TEST(Flash, MemoryGrowsWithTheLength) {
  const auto ratio = [](int64_t a, int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  const int64_t plain = temporaries(1024, 0), twice_plain = temporaries(2048, 0);
  EXPECT_GT(ratio(twice_plain, plain), 3.7);
  for (const int64_t window : {0, 128}) {
    for (const int64_t block : {128, 512}) {
      int64_t before = temporaries(512, block, window);
      for (const int64_t length : {1024, 2048, 4096, 8192}) {
        const int64_t now = temporaries(length, block, window);
        EXPECT_LT(ratio(now, before), 2.4)
            << "length " << length << ", blocks of " << block << ", window " << window;
        if (length == 2048) {
          EXPECT_LT(now * 10, twice_plain) << "blocks of " << block;
        }
        before = now;
      }
    }
  }
}

}  // namespace
}  // namespace mt::layers
