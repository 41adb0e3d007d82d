#include "kernels/cache_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "kernels/test_blocks.h"

namespace mt::kernels {
namespace {

// Numbers of any type in a cache's bytes.
std::vector<std::byte> narrowed(const std::vector<float>& x, DType dtype) {
  std::vector<std::byte> out(x.size() * static_cast<size_t>(byte_size(dtype)));
  for (size_t i = 0; i < x.size(); ++i) {
    if (dtype == DType::kF32) {
      reinterpret_cast<float*>(out.data())[i] = x[i];
    } else {
      reinterpret_cast<uint16_t*>(out.data())[i] =
          dtype == DType::kBF16 ? BFloat16::from_float(x[i]).bits : Float16::from_float(x[i]).bits;
    }
  }
  return out;
}

std::vector<float> widened(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> out(bytes.size() / static_cast<size_t>(byte_size(dtype)));
  for (size_t i = 0; i < out.size(); ++i) {
    const auto bits = [&] { return reinterpret_cast<const uint16_t*>(bytes.data())[i]; };
    switch (dtype) {
      case DType::kF32: out[i] = reinterpret_cast<const float*>(bytes.data())[i]; break;
      case DType::kBF16: out[i] = BFloat16{bits()}.to_float(); break;
      case DType::kF16: out[i] = Float16{bits()}.to_float(); break;
      default: out[i] = reinterpret_cast<const int8_t*>(bytes.data())[i]; break;
    }
  }
  return out;
}

struct Case {
  int64_t rows, heads, kv_heads, capacity, head_dim;
  DType dtype, cache_dtype;
  std::vector<int32_t> start;  // each row's last position
  int64_t window = 0;
};

// A cache that held garbage, given its tokens through the kernel, `together` at once; and the same
// tokens as they were given.
struct Generation {
  Generation(const Case& of, const Engine& engine, int64_t together = 1) : c(of), tokens(together) {
    const int64_t entries = c.rows * c.kv_heads * c.capacity;
    keys.assign(static_cast<size_t>(entries * c.head_dim * byte_size(c.cache_dtype)),
                std::byte{0x7f});
    values = keys;
    key_scales.assign(static_cast<size_t>(entries), std::numeric_limits<float>::quiet_NaN());
    value_scales = key_scales;
    int32_t longest = 0;
    for (const int32_t s : c.start) longest = std::max(longest, s);
    for (int32_t at = 0; at <= longest; at += static_cast<int32_t>(tokens)) step(engine, at);
  }

  std::vector<float> random(int64_t count, uint64_t seed) const {
    return widened(narrowed(random_floats(count, seed), c.dtype), c.dtype);
  }

  // Every row's tokens from `at`. A row that ends sooner gets padding that is not a number, or, one
  // token at a time, its last one again.
  void step(const Engine& engine, int32_t at) {
    std::vector<int32_t> start, count;
    q.clear();
    std::vector<float> k, v;
    for (int64_t b = 0; b < c.rows; ++b) {
      const int32_t last = c.start[static_cast<size_t>(b)];
      start.push_back(tokens == 1 ? std::min(at, last) : std::min(at, last + 1));
      count.push_back(
          tokens == 1 ? 1 : std::clamp<int32_t>(last + 1 - at, 0, static_cast<int32_t>(tokens)));
      for (int64_t t = 0; t < tokens; ++t) {
        const bool padding = t >= count.back();
        constexpr int64_t kWrong = 500;
        const auto row =
            static_cast<uint64_t>(1000 * (b + 1) + start.back() + t + (t >= right ? kWrong : 0));
        for (const float x : random(c.heads * c.head_dim, 1000000 + row)) q.push_back(x);
        for (const float x : random(c.kv_heads * c.head_dim, 2 * row)) {
          k.push_back(padding ? std::numeric_limits<float>::quiet_NaN() : x);
        }
        for (const float x : random(c.kv_heads * c.head_dim, 2 * row + 1)) {
          v.push_back(padding ? std::numeric_limits<float>::quiet_NaN() : x);
        }
      }
    }
    const auto q_bytes = narrowed(q, c.dtype), k_bytes = narrowed(k, c.dtype),
               v_bytes = narrowed(v, c.dtype);
    context.assign(q_bytes.size(), std::byte{0xff});
    const bool scaled = c.cache_dtype == DType::kS8;
    cache_attention(engine, {.rows = c.rows,
                             .tokens = tokens,
                             .heads = c.heads,
                             .kv_heads = c.kv_heads,
                             .capacity = c.capacity,
                             .head_dim = c.head_dim,
                             .window = c.window,
                             .dtype = c.dtype,
                             .q = q_bytes.data(),
                             .k = k_bytes.data(),
                             .v = v_bytes.data(),
                             .start = start,
                             .count = count,
                             .cache_dtype = c.cache_dtype,
                             .keys = keys.data(),
                             .values = values.data(),
                             .key_scales = scaled ? key_scales.data() : nullptr,
                             .value_scales = scaled ? value_scales.data() : nullptr,
                             .context = context.data()});
    for (int64_t b = 0; b < c.rows; ++b) {
      const auto row = static_cast<size_t>(b);
      const bool often = c.capacity < 50;  // all of a long row would take minutes
      for (int64_t t = 0; t < std::min<int64_t>(right, count[row]); ++t) {
        if (often || t + 1 == count[row] || start[row] + t == c.start[row])
          check(b, t, start[row] + t);
      }
    }
  }

  // The context of row b's token t of this step, which is at `position`.
  void check(int64_t b, int64_t t, int64_t position) {
    const std::vector<float> found = widened(context, c.dtype);
    for (int64_t n = 0; n < c.heads; ++n) {
      const std::vector<double> wanted = expected(b, t, n, position);
      for (size_t h = 0; h < wanted.size(); ++h) {
        const size_t at = static_cast<size_t>(((b * tokens + t) * c.heads + n) * c.head_dim) + h;
        const double error = std::abs(static_cast<double>(found[at]) - wanted[h]);
        if (!(error <= worst)) worst = error;  // NaN too
      }
    }
  }

  std::vector<double> expected(int64_t b, int64_t t, int64_t n, int64_t position) const;

  // The token at `position` of a row as it was given: keys (0) or values (1) of one head.
  std::vector<float> token(int64_t b, int64_t head, int64_t position, uint64_t which) const {
    const auto row = static_cast<uint64_t>(1000 * (b + 1) + position);
    std::vector<float>& all = given[2 * row + which];
    if (all.empty()) all = random(c.kv_heads * c.head_dim, 2 * row + which);
    return {all.begin() + head * c.head_dim, all.begin() + (head + 1) * c.head_dim};
  }

  Case c;
  int64_t tokens;
  int64_t right =
      std::numeric_limits<int64_t>::max();  // of a step's tokens; the others are guesses
  std::vector<std::byte> keys, values, context;
  std::vector<float> key_scales, value_scales, q;
  mutable std::map<uint64_t, std::vector<float>> given;  // by seed
  double worst = 0;                                      // error of any context
};

// Attention in double of one query head, to what the ring and the window hold of its row.
std::vector<double> Generation::expected(int64_t b, int64_t t, int64_t n, int64_t last) const {
  const int64_t head = n / (c.heads / c.kv_heads);
  std::vector<double> scores;
  const int64_t seen = c.window > 0 ? std::min(c.window, c.capacity) : c.capacity;
  const int64_t first = std::max<int64_t>(0, last + 1 - seen);
  for (int64_t p = first; p <= last; ++p) {
    const std::vector<float> key = token(b, head, p, 0);
    double sum = 0;
    for (int64_t i = 0; i < c.head_dim; ++i) {
      sum += static_cast<double>(key[static_cast<size_t>(i)]) *
             static_cast<double>(
                 q[static_cast<size_t>(((b * tokens + t) * c.heads + n) * c.head_dim + i)]);
    }
    scores.push_back(sum);
  }
  const double most = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  std::vector<double> out(static_cast<size_t>(c.head_dim));
  for (size_t i = 0; i < scores.size(); ++i) {
    const double weight = std::exp(scores[i] - most);
    total += weight;
    const std::vector<float> value = token(b, head, first + static_cast<int64_t>(i), 1);
    for (size_t h = 0; h < out.size(); ++h) out[h] += weight * static_cast<double>(value[h]);
  }
  for (double& x : out) x /= total;
  return out;
}

void expect_attention(const Case& c, const Engine& engine, double tolerance) {
  for (const int64_t together : {1, 5, 9, 16, 300}) {
    // A ring that is shorter than what is seen of it would lose keys within one call.
    const int32_t longest = *std::max_element(c.start.begin(), c.start.end());
    if (together > 1 && c.window == 0 && longest >= c.capacity) continue;
    // Nor may a few tokens overwrite what the first of them sees.
    const bool few = together > 1 && together <= kFewRows;
    if (few && c.window > 0 && longest >= c.capacity && c.window + together > c.capacity + 1)
      continue;
    const Generation run(c, engine, together);
    EXPECT_LE(run.worst, tolerance)
        << c.heads << " heads of " << c.head_dim << ", ring of " << c.capacity << ", "
        << name(c.dtype) << " over " << name(c.cache_dtype) << ", " << together << " at once";
  }
}

class CacheAttentionOf : public ::testing::TestWithParam<InstructionSet> {
 protected:
  Pool pool{3};
  Engine engine{pool, GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Sets, CacheAttentionOf, ::testing::ValuesIn(supported_instruction_sets()),
                         [](const auto& param) {
                           std::string text = name(param.param);
                           std::erase(text, '-');
                           return text;
                         });

// Rings that are not full, just full and written over; one piece of entries and several; heads
// that come in fours, twos and alone; sizes that fill registers and sizes that don't.
TEST_P(CacheAttentionOf, EqualsAttentionInDouble) {
  expect_attention({1, 4, 1, 16, 32, DType::kF32, DType::kF32, {0}}, engine, 1e-6);
  expect_attention({1, 4, 1, 16, 32, DType::kF32, DType::kF32, {15}}, engine, 1e-5);
  expect_attention({1, 4, 1, 16, 32, DType::kF32, DType::kF32, {16}}, engine, 1e-5);
  expect_attention({3, 6, 2, 9, 64, DType::kF32, DType::kF32, {30, 3, 0}}, engine, 1e-5);
  expect_attention({2, 7, 1, 700, 80, DType::kF32, DType::kF32, {650, 255}}, engine, 1e-5);
  expect_attention({1, 5, 5, 12, 20, DType::kF32, DType::kF32, {8}}, engine, 1e-5);
  expect_attention({2, 2, 1, 5, 1, DType::kF32, DType::kF32, {3, 12}}, engine, 1e-5);
}

// Prompts in pieces whose ends fall anywhere in a window.
TEST_P(CacheAttentionOf, HonoursTheWindowWithinAPiece) {
  expect_attention({3, 4, 1, 9, 32, DType::kF32, DType::kF32, {40, 20, 3}, 9}, engine, 1e-5);
  expect_attention({2, 4, 2, 40, 16, DType::kF32, DType::kF32, {330, 39}, 40}, engine, 1e-5);
  expect_attention({3, 4, 1, 13, 32, DType::kF32, DType::kF32, {40, 20, 3}, 9}, engine, 1e-5);
  expect_attention({1, 4, 2, 300, 32, DType::kF32, DType::kF32, {590}, 280}, engine, 1e-5);
  expect_attention({1, 2, 1, 280, 48, DType::kF32, DType::kBF16, {340}, 280}, engine, 0.01);
}

TEST_P(CacheAttentionOf, TakesNarrowCachesAndNarrowActivations) {
  expect_attention({2, 4, 1, 40, 64, DType::kBF16, DType::kBF16, {50, 20}}, engine, 0.004);
  expect_attention({2, 4, 1, 40, 64, DType::kF32, DType::kF16, {50, 20}}, engine, 0.002);
  expect_attention({2, 4, 1, 40, 64, DType::kF32, DType::kBF16, {50, 20}}, engine, 0.01);
  expect_attention({2, 4, 2, 40, 64, DType::kF32, DType::kS8, {50, 20}}, engine, 0.02);
  expect_attention({1, 4, 1, 300, 48, DType::kF16, DType::kS8, {290}}, engine, 0.02);
}

// Scores that differ by hundreds: no weight overflows, and the largest takes all.
TEST_P(CacheAttentionOf, LargeScores) {
  const int64_t h = 16, c = 300;
  std::vector<float> q(16, 10), keys(static_cast<size_t>(c * h)), values(keys.size());
  for (int64_t i = 0; i < c; ++i) {
    for (int64_t j = 0; j < h; ++j) {
      keys[static_cast<size_t>(i * h + j)] = i == 270 ? 90.0F : -90.0F;
      values[static_cast<size_t>(i * h + j)] = static_cast<float>(i);
    }
  }
  const std::vector<float> k(16, -90), v(16, 5);
  const std::vector<int32_t> start{299};
  std::vector<float> context(16);
  cache_attention(engine, {1,
                           1,
                           1,
                           1,
                           c,
                           h,
                           0,
                           DType::kF32,
                           q.data(),
                           k.data(),
                           v.data(),
                           start,
                           {},
                           DType::kF32,
                           keys.data(),
                           values.data(),
                           nullptr,
                           nullptr,
                           context.data()});
  for (const float x : context) EXPECT_EQ(x, 270);
}

// What is not a number stays so, in its own row.
TEST_P(CacheAttentionOf, NotANumberStaysInItsRow) {
  for (const DType cache : {DType::kF32, DType::kS8}) {
    const int64_t h = 16, c = 300;
    std::vector<float> q(32, 1), k(32, 1), v(32, 2), context(32);
    std::vector<std::byte> keys(static_cast<size_t>(2 * c * h * byte_size(cache)));
    std::vector<std::byte> values = keys;
    std::vector<float> key_scales(static_cast<size_t>(2 * c), 1), value_scales = key_scales;
    k[16] = std::numeric_limits<float>::quiet_NaN();
    for (const int32_t at : {0, 299}) {
      const std::vector<int32_t> start{at, at};
      cache_attention(engine, {2,
                               1,
                               1,
                               1,
                               c,
                               h,
                               0,
                               DType::kF32,
                               q.data(),
                               k.data(),
                               v.data(),
                               start,
                               {},
                               cache,
                               keys.data(),
                               values.data(),
                               key_scales.data(),
                               value_scales.data(),
                               context.data()});
      k[16] = 1;
      EXPECT_TRUE(std::isnan(context[16])) << name(cache) << " at " << at;
      EXPECT_TRUE(std::isfinite(context[0])) << name(cache) << " at " << at;
    }
  }
}

// A few tokens at once, some of them taken back, are as one by one to the last bit.
TEST_P(CacheAttentionOf, GuessesLeaveNoTrace) {
  const Case c{1, 4, 1, 24, 32, DType::kF32, DType::kF32, {70}, 16};
  Generation one(c, engine, 1);
  Generation guessed(c, engine, 1);
  guessed.tokens = kFewRows;
  guessed.right = 3;
  for (int32_t at = 71; at < 120; at += 3) {
    guessed.c.start = {at + static_cast<int32_t>(kFewRows) - 1};
    guessed.step(engine, at);
    const auto all = guessed.context;
    for (int32_t t = 0; t < 3; ++t) {
      one.c.start = {at + t};
      one.step(engine, at + t);
      const size_t size = one.context.size();
      const std::vector<std::byte> same(all.begin() + static_cast<long>(size) * t,
                                        all.begin() + static_cast<long>(size) * (t + 1));
      ASSERT_EQ(same, one.context) << "token " << at + t;
    }
  }
}

TEST_P(CacheAttentionOf, ARowDoesNotDependOnItsNeighboursOrThreads) {
  const Case alone{1, 4, 1, 600, 32, DType::kF32, DType::kBF16, {500}};
  const Case beside{3, 4, 1, 600, 32, DType::kF32, DType::kBF16, {500, 30, 499}};
  Pool one(1);
  for (const int64_t together : {1, 501}) {
    const Generation a(alone, {one, GetParam()}, together), b(beside, engine, together);
    // Row 0's q and tokens are the same in both.
    const std::vector<float> x = widened(a.context, DType::kF32),
                             y = widened(b.context, DType::kF32);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], y[i]) << i;
  }
}

}  // namespace
}  // namespace mt::kernels
