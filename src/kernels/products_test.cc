#include "kernels/products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

#include "kernels/greedy.h"
#include "kernels/norm.h"
#include "kernels/test_blocks.h"

namespace mt::kernels {
namespace {

constexpr const char* kQuantised[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0",
                                      "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"};
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<uint32_t> bits(const std::vector<float>& values) {
  std::vector<uint32_t> out;
  for (const float x : values) out.push_back(std::bit_cast<uint32_t>(x));
  return out;
}

// Each test runs with every instruction set of this processor.
class Kernels : public ::testing::TestWithParam<InstructionSet> {
 protected:
  Pool pool{3};
  Engine engine{pool, GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Sets, Kernels, ::testing::ValuesIn(supported_instruction_sets()),
                         [](const auto& param) {
                           std::string text = name(param.param);
                           std::erase(text, '-');
                           return text;
                         });

TEST_P(Kernels, DequantisedValuesAreTheCheckpointsToTheLastBit) {
  for (const char* name : {"F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K",
                           "Q4_K", "Q5_K", "Q6_K"}) {
    const auto& format = block_format(name);
    for (const int64_t k : {format.elements, 3 * format.elements, int64_t{1280}}) {
      constexpr int64_t kRows = 37;
      const auto blocks = random_blocks(format, kRows * k / format.elements, 5);
      const std::vector<float> expected = decoded(format, blocks);
      std::vector<float> wide(expected.size(), kNaN);
      dequantise(engine, format, blocks.data(), kRows, k, DType::kF32, wide.data());
      EXPECT_EQ(bits(wide), bits(expected)) << name << ", k = " << k;
      std::vector<uint16_t> narrow(expected.size()), rounded;
      for (const float x : expected) rounded.push_back(BFloat16::from_float(x).bits);
      dequantise(engine, format, blocks.data(), kRows, k, DType::kBF16, narrow.data());
      EXPECT_EQ(narrow, rounded) << name << ", k = " << k;
    }
  }
}

// x as products see it: for each 32 values, integers of at most 32639 times a scale.
std::vector<float> rounded(const std::vector<float>& x) {
  std::vector<float> out;
  for (size_t at = 0; at < x.size(); at += 32) {
    float largest = 0;
    for (size_t i = at; i < at + 32; ++i) largest = std::max(largest, std::abs(x[i]));
    const float scale = largest / 32639.0F;
    for (size_t i = at; i < at + 32; ++i) out.push_back(scale * std::nearbyint(x[i] / scale));
  }
  return out;
}

struct Matrix {
  std::vector<float> values;  // [rows, k]
  int64_t rows = 0;
};

struct Sum {
  double value = 0, magnitude = 0;  // the latter of the terms: what rounding errors scale with
};
Sum dot(const float* a, const float* b, int64_t k) {
  Sum sum;
  for (int64_t i = 0; i < k; ++i) {
    const double term = static_cast<double>(a[i]) * static_cast<double>(b[i]);
    sum.value += term;
    sum.magnitude += std::abs(term);
  }
  return sum;
}

// found[m, n] against x w^T in double, within `epsilons` roundings of the terms.
void expect_product(const std::vector<float>& found, const std::vector<float>& x, const Matrix& w,
                    double epsilons, const std::string& what) {
  const int64_t k = static_cast<int64_t>(w.values.size()) / w.rows;
  const int64_t m = static_cast<int64_t>(x.size()) / k;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t n = 0; n < w.rows; ++n) {
      const Sum expected = dot(x.data() + i * k, w.values.data() + n * k, k);
      ASSERT_NEAR(static_cast<double>(found[static_cast<size_t>(i * w.rows + n)]), expected.value,
                  epsilons * 0x1p-24 * expected.magnitude)
          << what << ", k " << k << ", row " << i << " of " << m << ", column " << n << " of "
          << w.rows;
    }
  }
}

// A format with a minimum sums larger terms than its values are: q * scale and the minimum.
double epsilons(const char* name) {
  const std::string text = name;
  const bool minimum = text.ends_with("_1") || text == "Q2_K" || text == "Q4_K" || text == "Q5_K";
  return minimum ? 128 : 32;
}

TEST_P(Kernels, QuantisedProductsEqualTheProductInDouble) {
  for (const char* name : kQuantised) {
    const auto& format = block_format(name);
    for (const int64_t k : {format.elements, 3 * format.elements, int64_t{1280}}) {
      for (const int64_t m : {1, 2, 3, 7, 16, 21, 45}) {
        for (const int64_t rows : {1, 37, 200}) {
          const auto blocks = random_blocks(format, rows * k / format.elements, 7);
          const std::vector<float> x = random_floats(m * k, 11);
          std::vector<float> out(static_cast<size_t>(m * rows), kNaN);
          const QuantisedWeight w{&format, blocks.data(), rows, out.data()};
          quantised_matmul(engine, x.data(), m, k, {&w, 1});
          expect_product(out, rounded(x), {decoded(format, blocks), rows}, epsilons(name), name);
        }
      }
    }
  }
}

// Rounding x to 16 bits costs at most half a step of its 32 values, and on the whole far less.
TEST_P(Kernels, RoundingActivationsCostsLittle) {
  constexpr int64_t kK = 2048, kRows = 64;
  const auto& format = block_format("Q8_0");
  const auto blocks = random_blocks(format, kRows * kK / 32, 7);
  const std::vector<float> x = random_floats(kK, 12), w = decoded(format, blocks);
  std::vector<float> out(kRows);
  const QuantisedWeight weight{&format, blocks.data(), kRows, out.data()};
  quantised_matmul(engine, x.data(), 1, kK, {&weight, 1});
  double errors = 0, values = 0;
  for (int64_t n = 0; n < kRows; ++n) {
    const Sum exact = dot(x.data(), w.data() + n * kK, kK);
    errors += std::pow(static_cast<double>(out[static_cast<size_t>(n)]) - exact.value, 2);
    values += exact.value * exact.value;
  }
  EXPECT_LT(std::sqrt(errors / values), 0.00003);
}

TEST_P(Kernels, SeveralWeightsShareTheirActivations) {
  constexpr int64_t kK = 512, kM = 3;
  const std::vector<float> x = random_floats(kM * kK, 13);
  const char* names[] = {"Q4_K", "Q8_0", "Q6_K"};
  const int64_t rows[] = {100, 1, 33};
  std::vector<std::vector<uint8_t>> blocks;
  std::vector<std::vector<float>> out;
  for (size_t i = 0; i < 3; ++i) {
    const auto& format = block_format(names[i]);
    blocks.push_back(random_blocks(format, rows[i] * kK / format.elements, i));
    out.emplace_back(static_cast<size_t>(kM * rows[i]), kNaN);
  }
  std::vector<QuantisedWeight> weights;
  for (size_t i = 0; i < 3; ++i) {
    weights.push_back({&block_format(names[i]), blocks[i].data(), rows[i], out[i].data()});
  }
  quantised_matmul(engine, x.data(), kM, kK, weights);
  for (size_t i = 0; i < 3; ++i) {
    expect_product(out[i], rounded(x), {decoded(block_format(names[i]), blocks[i]), rows[i]},
                   epsilons(names[i]), names[i]);
  }
}

std::vector<uint8_t> packed(const Engine& engine, const checkpoint::BlockFormat& format,
                            const std::vector<uint8_t>& blocks, int64_t rows, int64_t k) {
  std::vector<uint8_t> out(blocks.size());
  pack_rows(engine, format, blocks.data(), rows, k, out.data());
  return out;
}

// Packed rows: the same products, each row of x alone as among others.
TEST_P(Kernels, PackedRowsGiveTheProductInDouble) {
  for (const char* name : kQuantised) {
    const auto& format = block_format(name);
    if (!can_pack(engine, format, 16)) continue;
    EXPECT_FALSE(can_pack(engine, format, 40));
    for (const int64_t k : {format.elements, 3 * format.elements, int64_t{1280}}) {
      for (const int64_t rows : {16, 208}) {
        const auto blocks = random_blocks(format, rows * k / format.elements, 7);
        const auto in_panels = packed(engine, format, blocks, rows, k);
        const Matrix w{decoded(format, blocks), rows};
        std::vector<float> alone;
        for (const int64_t m : {1, 2, 3, 7, 8, 9, 21, 45}) {
          const std::vector<float> x = random_floats(m * k, 11);
          std::vector<float> out(static_cast<size_t>(m * rows), kNaN);
          const QuantisedWeight weight{&format, in_panels.data(), rows, out.data(), true};
          quantised_matmul(engine, x.data(), m, k, {&weight, 1});
          expect_product(out, rounded(x), w, epsilons(name), name);
          out.resize(static_cast<size_t>(rows));
          if (m == 1) alone = out;
          if (m > kFewRows) continue;
          EXPECT_EQ(bits(out), bits(alone)) << name << ", " << m << " rows";
        }
      }
    }
  }
}

// One call with packed rows and others, for few rows of x and many.
TEST_P(Kernels, PackedRowsBesideOthers) {
  constexpr int64_t kK = 512, kRows = 32;
  const auto& format = block_format("Q5_0");
  if (!can_pack(engine, format, kRows)) return;
  const auto blocks = random_blocks(format, kRows * kK / 32, 7);
  const auto in_panels = packed(engine, format, blocks, kRows, kK);
  const Matrix w{decoded(format, blocks), kRows};
  for (const int64_t m : {1, 5, 20}) {
    const std::vector<float> x = random_floats(m * kK, 11);
    std::vector<float> a(static_cast<size_t>(m * kRows), kNaN), b = a;
    const QuantisedWeight weights[] = {{&format, in_panels.data(), kRows, a.data(), true},
                                       {&format, blocks.data(), kRows, b.data()}};
    quantised_matmul(engine, x.data(), m, kK, weights);
    expect_product(a, rounded(x), w, 32, "packed");
    expect_product(b, rounded(x), w, 32, "as in the file");
  }
}

// The extremes of a format's integers and of the activations', where sums of bytes could overflow.
TEST_P(Kernels, PackedExtremes) {
  constexpr int64_t kK = 4096;
  for (const char* name : {"Q8_0", "Q5_0", "Q4_0"}) {
    const auto& format = block_format(name);
    if (!can_pack(engine, format, 16)) continue;
    for (const int byte : {0x00, 0x7f, 0x80, 0xff}) {
      std::vector<uint8_t> blocks(static_cast<size_t>(16 * kK / 32 * format.bytes),
                                  static_cast<uint8_t>(byte));
      for (size_t at = 0; at < blocks.size(); at += static_cast<size_t>(format.bytes)) {
        blocks[at] = 0;
        blocks[at + 1] = 0x3c;  // 1
      }
      const auto in_panels = packed(engine, format, blocks, 16, kK);
      const Matrix w{decoded(format, blocks), 16};
      for (const float value : {1.0F, -1.0F}) {
        const std::vector<float> x(kK, value);
        std::vector<float> out(16, kNaN);
        const QuantisedWeight weight{&format, in_panels.data(), 16, out.data(), true};
        quantised_matmul(engine, x.data(), 1, kK, {&weight, 1});
        expect_product(out, x, w, 32, name);
      }
    }
  }
}

TEST_P(Kernels, PackedRowsMeetWhatIsNotFinite) {
  constexpr int64_t kK = 96, kRows = 16, kM = 2;
  const auto& format = block_format("Q5_0");
  if (!can_pack(engine, format, kRows)) return;
  const auto blocks = random_blocks(format, kRows * kK / 32, 3);
  const auto in_panels = packed(engine, format, blocks, kRows, kK);
  for (const float bad : {kNaN, std::numeric_limits<float>::infinity(), 0.0F, 1e-44F}) {
    std::vector<float> x = random_floats(kM * kK, 1), out(kM * kRows);
    std::fill(x.begin(), x.begin() + kK, 0.0F);
    x[40] = bad;
    const QuantisedWeight w{&format, in_panels.data(), kRows, out.data(), true};
    quantised_matmul(engine, x.data(), kM, kK, {&w, 1});
    for (size_t n = 0; n < kRows; ++n) {
      EXPECT_EQ(std::isnan(out[n]), bad != bad || bad > 1) << bad;
      EXPECT_TRUE(std::isfinite(out[kRows + n])) << "the other row";
    }
  }
}

// What lies beyond k in memory that held NaNs: loops multiply it by zeros.
TEST_P(Kernels, UnpackedRowsEndInFiniteNumbers) {
  const KernelTable& table = kernels_for(GetParam());
  for (size_t f = 0; f < kFormats; ++f) {
    const auto& format = block_format(kQuantised[f]);
    for (int64_t k = format.elements; k <= 12 * format.elements; k += format.elements) {
      const auto blocks = random_blocks(format, k / format.elements, 2);
      std::vector<float> memory(static_cast<size_t>(Rows::bytes(2, k)) / sizeof(float), kNaN);
      const Rows rows{reinterpret_cast<std::byte*>(memory.data()), 2, k};
      for (int64_t row : {0, 1}) {
        table.formats[f].unpack(blocks.data(), rows, row);
        for (int64_t i = 0; i < 16; ++i) {
          ASSERT_TRUE(std::isfinite(rows.scale(row, chunk_count(k) - 1)[i])) << format.name << k;
          if (!has_minimum(static_cast<Format>(f))) continue;
          ASSERT_TRUE(std::isfinite(rows.per_16(row, block_count(k) - 1)[i])) << format.name << k;
        }
      }
    }
  }
}

// The extremes of every integer, where a sum of products could overflow: all -128 in Q8_0.
TEST_P(Kernels, LargestIntegersDontOverflow) {
  const auto& format = block_format("Q8_0");
  constexpr int64_t kK = 4096;
  std::vector<uint8_t> blocks(static_cast<size_t>(kK / 32 * format.bytes), 0x80);
  for (size_t at = 0; at < blocks.size(); at += 34) {
    blocks[at] = 0;
    blocks[at + 1] = 0x3c;  // 1
  }
  for (const float value : {1.0F, -1.0F}) {
    const std::vector<float> x(kK, value);
    float out = 0;
    const QuantisedWeight w{&format, blocks.data(), 1, &out};
    quantised_matmul(engine, x.data(), 1, kK, {&w, 1});
    EXPECT_FLOAT_EQ(out, -128 * value * kK);
  }
}

TEST_P(Kernels, ActivationsOfZeroTinyAndNotFinite) {
  const auto& format = block_format("Q5_0");
  constexpr int64_t kK = 96, kRows = 5, kM = 2;
  const auto blocks = random_blocks(format, kRows * kK / 32, 3);
  const auto product = [&](float value) {
    std::vector<float> x = random_floats(kM * kK, 1);
    std::fill(x.begin(), x.begin() + kK, 0.0F);
    x[40] = value;
    std::vector<float> out(kM * kRows);
    const QuantisedWeight w{&format, blocks.data(), kRows, out.data()};
    quantised_matmul(engine, x.data(), kM, kK, {&w, 1});
    return out;
  };
  const auto w = decoded(format, blocks);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {kNaN, -kNaN, infinity, -infinity}) {
    const std::vector<float> out = product(bad);
    for (size_t n = 0; n < kRows; ++n) {
      EXPECT_TRUE(std::isnan(out[n])) << bad;
      EXPECT_TRUE(std::isfinite(out[kRows + n])) << "the other row";
    }
  }
  for (const float small : {0.0F, 1e-44F, 1e-36F}) {
    for (size_t n = 0; n < kRows; ++n) EXPECT_EQ(product(small)[n], 0.0F) << small;
  }
  for (const float size : {1e-30F, 1e30F}) {
    for (size_t n = 0; n < kRows; ++n) {
      const float expected = w[n * kK + 40] * size;
      EXPECT_NEAR(product(size)[n], expected, 1e-6F * std::abs(expected)) << size;
    }
  }
}

// Equal inputs give equal results, however the rows were shared out.
TEST_P(Kernels, ResultsDontDependOnThreads) {
  const auto& format = block_format("Q4_K");
  constexpr int64_t kK = 1024, kRows = 3000;
  const auto blocks = random_blocks(format, kRows * kK / 256, 3);
  const std::vector<float> x = random_floats(kK, 1);
  std::vector<float> out(kRows), alone(kRows);
  QuantisedWeight w{&format, blocks.data(), kRows, alone.data()};
  Pool one(1);
  quantised_matmul({one, GetParam()}, x.data(), 1, kK, {&w, 1});
  w.out = out.data();
  for (int i = 0; i < 20; ++i) {
    std::fill(out.begin(), out.end(), kNaN);
    quantised_matmul(engine, x.data(), 1, kK, {&w, 1});
    ASSERT_EQ(out, alone);
  }
}

// A row's results are the same alone and among up to kFewRows, to the last bit: what a guess of the
// next tokens is checked by must not differ from what one step gives.
TEST_P(Kernels, AFewRowsAreEachAsAlone) {
  constexpr int64_t kK = 1280, kRows = 50;
  const std::vector<float> x = random_floats(kFewRows * kK, 13);
  const auto expect_alone = [&](const auto& product, const char* name) {
    std::vector<float> alone(static_cast<size_t>(kFewRows * kRows));
    for (int64_t i = 0; i < kFewRows; ++i) product(x.data() + i * kK, 1, alone.data() + i * kRows);
    for (int64_t m = 2; m <= kFewRows; ++m) {
      std::vector<float> out(static_cast<size_t>(m * kRows), kNaN);
      product(x.data(), m, out.data());
      const std::vector<float> first(alone.begin(), alone.begin() + m * kRows);
      EXPECT_EQ(bits(out), bits(first)) << name << ", " << m << " rows";
    }
  };
  for (const char* name : kQuantised) {
    const auto& format = block_format(name);
    const auto blocks = random_blocks(format, kRows * kK / format.elements, 7);
    expect_alone(
        [&](const float* rows, int64_t m, float* out) {
          const QuantisedWeight w{&format, blocks.data(), kRows, out};
          quantised_matmul(engine, rows, m, kK, {&w, 1});
        },
        name);
  }
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const auto& format = block_format(dtype == DType::kF32   ? "F32"
                                      : dtype == DType::kF16 ? "F16"
                                                             : "BF16");
    auto bytes = random_blocks(format, kRows * kK, 9);
    if (dtype == DType::kF32) {
      const std::vector<float> values = random_floats(kRows * kK, 4);
      std::copy_n(reinterpret_cast<const uint8_t*>(values.data()), bytes.size(), bytes.begin());
    }
    expect_alone(
        [&](const float* rows, int64_t m, float* out) {
          const FloatWeight w{dtype, bytes.data(), kRows, out};
          matvec(engine, rows, m, kK, {&w, 1});
        },
        "floats");
  }
}

TEST_P(Kernels, FloatWeights) {
  for (const auto& [dtype, name] : {std::pair{DType::kF32, "F32"}, std::pair{DType::kF16, "F16"},
                                    std::pair{DType::kBF16, "BF16"}}) {
    const auto& format = block_format(name);
    for (const int64_t k : {1, 15, 64, 333, 1280}) {
      for (const int64_t m : {1, 2, 3, 7, 16, 21}) {
        constexpr int64_t kRows = 77;
        auto bytes = random_blocks(format, kRows * k, 9);
        if (dtype == DType::kF32) {
          const std::vector<float> values = random_floats(kRows * k, 4);
          std::copy_n(reinterpret_cast<const uint8_t*>(values.data()), bytes.size(), bytes.begin());
        }
        const std::vector<float> x = random_floats(m * k, 11);
        std::vector<float> out(static_cast<size_t>(m * kRows), kNaN);
        const FloatWeight w{dtype, bytes.data(), kRows, out.data()};
        matvec(engine, x.data(), m, k, {&w, 1});
        expect_product(out, x, {decoded(format, bytes), kRows}, 64, name);
      }
    }
  }
}

TEST_P(Kernels, NothingToDo) {
  const auto& format = block_format("Q8_0");
  const std::vector<float> x(32, 1.0F);
  const QuantisedWeight none{&format, nullptr, 0, nullptr};
  quantised_matmul(engine, x.data(), 1, 32, {&none, 1});
  quantised_matmul(engine, x.data(), 1, 32, {});
  std::vector<float> out(3, kNaN);
  const QuantisedWeight empty{&format, nullptr, 3, out.data()};
  quantised_matmul(engine, nullptr, 1, 0, {&empty, 1});
  EXPECT_EQ(out, std::vector<float>(3, 0.0F));
  dequantise(engine, format, nullptr, 0, 32, DType::kF32, nullptr);
}

// Against double; ties go to the first, and what is not finite shows in the log-probability alone.
TEST_P(Kernels, GreedyTakesTheFirstOfTheLargest) {
  for (const int64_t vocabulary : {1, 5, 16, 8192, 8193, 30000}) {
    std::vector<float> x = random_floats(2 * vocabulary, 3, 5);
    const auto at = static_cast<size_t>(vocabulary * 2 / 3);
    x[at] = 9;
    if (at + 1 < static_cast<size_t>(vocabulary)) x[at + 1] = 9;
    int32_t token[2];
    float log_prob[2];
    greedy(engine, x.data(), 2, vocabulary, token, log_prob);
    EXPECT_EQ(token[0], static_cast<int32_t>(at)) << vocabulary;
    for (int64_t row : {0, 1}) {
      const float* logits = x.data() + row * vocabulary;
      double sum = 0;
      for (int64_t i = 0; i < vocabulary; ++i) sum += std::exp(static_cast<double>(logits[i]));
      EXPECT_EQ(logits[token[row]], *std::max_element(logits, logits + vocabulary));
      EXPECT_NEAR(log_prob[row], static_cast<double>(logits[token[row]]) - std::log(sum), 2e-6);
    }
    for (const float bad :
         {kNaN, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
      x[static_cast<size_t>(vocabulary - 1)] = bad;
      greedy(engine, x.data(), 2, vocabulary, token, log_prob);
      EXPECT_TRUE(std::isnan(log_prob[0])) << bad;
      EXPECT_TRUE(token[0] >= 0 && token[0] < vocabulary) << bad;
      EXPECT_FALSE(std::isnan(log_prob[1])) << "the other row";
    }
  }
}

std::vector<double> normed(const float* x, const std::vector<float>& scale, double epsilon) {
  double sum = 0;
  for (size_t i = 0; i < scale.size(); ++i)
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double inverse = 1 / std::sqrt(sum / static_cast<double>(scale.size()) + epsilon);
  std::vector<double> out;
  for (size_t i = 0; i < scale.size(); ++i) {
    out.push_back(static_cast<double>(x[i]) * inverse * static_cast<double>(scale[i]));
  }
  return out;
}

// With and without the rotary embedding, sizes that fill registers and sizes that don't.
TEST_P(Kernels, NormsEqualThoseInDouble) {
  for (const int64_t size : {2, 10, 40, 256, 640}) {
    constexpr int64_t kRows = 120, kHeads = 4;
    const std::vector<float> x = random_floats(kRows * size, 1), scale = random_floats(size, 2);
    const std::vector<float> cos = random_floats(kRows / kHeads * size / 2, 3),
                             sin = random_floats(kRows / kHeads * size / 2, 4);
    for (const bool turns : {false, true}) {
      std::vector<float> out(x.size(), kNaN);
      Norm norm{
          .rows = kRows, .size = size, .x = x.data(), .scale = scale.data(), .epsilon = 1e-6F};
      if (turns) {
        norm.cos = cos.data();
        norm.sin = sin.data();
        norm.heads = kHeads;
        norm.factor = 0.5F;
      }
      norm.out = out.data();
      rms_norm(engine, norm);
      for (int64_t row = 0; row < kRows; ++row) {
        std::vector<double> wanted = normed(x.data() + row * size, scale, 1e-6);
        for (int64_t i = 0; turns && i < size / 2; ++i) {
          const auto at = static_cast<size_t>(row / kHeads * size / 2 + i);
          const double c = static_cast<double>(cos[at]), s = static_cast<double>(sin[at]);
          double &a = wanted[static_cast<size_t>(i)],
                 &b = wanted[static_cast<size_t>(i + size / 2)];
          const double left = 0.5 * (a * c - b * s), right = 0.5 * (b * c + a * s);
          a = left;
          b = right;
        }
        for (int64_t i = 0; i < size; ++i) {
          ASSERT_NEAR(out[static_cast<size_t>(row * size + i)], wanted[static_cast<size_t>(i)],
                      2e-6)
              << "size " << size << " row " << row << " at " << i;
        }
      }
    }
  }
}

TEST_P(Kernels, NormsOfNarrowNumbersRoundOnce) {
  constexpr int64_t kRows = 3, kSize = 48;
  const std::vector<float> wide = random_floats(kRows * kSize, 1), scale = random_floats(kSize, 2);
  std::vector<uint16_t> x, narrow_scale, out(wide.size());
  std::vector<float> exact_x, exact_scale;
  for (const float v : wide) x.push_back(BFloat16::from_float(v).bits);
  for (const float v : scale) narrow_scale.push_back(BFloat16::from_float(v).bits);
  for (const uint16_t v : x) exact_x.push_back(BFloat16{v}.to_float());
  for (const uint16_t v : narrow_scale) exact_scale.push_back(BFloat16{v}.to_float());
  rms_norm(engine, {.rows = kRows,
                    .size = kSize,
                    .dtype = DType::kBF16,
                    .scale_dtype = DType::kBF16,
                    .x = x.data(),
                    .scale = narrow_scale.data(),
                    .epsilon = 1e-6F,
                    .out = out.data()});
  for (int64_t row = 0; row < kRows; ++row) {
    const std::vector<double> wanted = normed(exact_x.data() + row * kSize, exact_scale, 1e-6);
    for (size_t i = 0; i < kSize; ++i) {
      const float found = BFloat16{out[static_cast<size_t>(row) * kSize + i]}.to_float();
      EXPECT_NEAR(found, wanted[i], 0x1p-8 * std::abs(wanted[i]));
    }
  }
}

}  // namespace
}  // namespace mt::kernels
