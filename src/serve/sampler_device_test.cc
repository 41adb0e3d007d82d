// Whole distributions: many draws against the probabilities that the settings leave.
#include "serve/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "base/random.h"
#include "ir/passes.h"
#include "kernels/kernels.h"
#include "nnx/jit.h"

namespace mt::serve {
namespace {

constexpr int64_t kRows = 4000, kVocab = 7;

std::shared_ptr<const pjrt::Client> client() {
  static const auto the_client = pjrt::Client::create({.platform = "cpu", .device_count = 1});
  return the_client;
}

// What the device says of kRows rows.
struct Drawn {
  std::vector<int32_t> ids;
  std::vector<float> log_probs;
};

Drawn run(nnx::Compiled& program, const std::vector<Tensor>& inputs) {
  const auto out = program(inputs);
  const Tensor ids = out[0].to_host(), log_probs = out[1].to_host();
  return {{ids.data<int32_t>().begin(), ids.data<int32_t>().end()},
          {log_probs.data<float>().begin(), log_probs.data<float>().end()}};
}

Tensor repeated(const std::vector<float>& row) {
  std::vector<float> all;
  for (int64_t r = 0; r < kRows; ++r) all.insert(all.end(), row.begin(), row.end());
  return Tensor::of<float>(DType::kF32, {kRows, kVocab}, all);
}

const std::vector<nnx::Input>& inputs() {
  static const std::vector<nnx::Input> list{{"logits", {DType::kF32, {kRows, kVocab}}, {}},
                                            {"settings", {DType::kF32, {kRows, kSettings}}, {}},
                                            {"keys", {DType::kU32, {kRows, 2}}, {}},
                                            {"seen", {DType::kS32, {1, kVocab}}, {}},
                                            {"bias", {DType::kF32, {1, kVocab}}, {}}};
  return list;
}

nnx::Compiled sample_program(bool cpu_kernels) {
  kernels::register_cpu_handlers(*client());
  return nnx::jit("sample", client(), {}, inputs(), {},
                  [=](ir::Graph&, const std::vector<ir::Value>& in) -> std::vector<nnx::Output> {
                    const auto all = [](ir::Value x) {
                      return ir::broadcast_to(x, {kRows, kVocab});
                    };
                    const ir::Value adjusted = adjust(in[0], in[1], all(in[3]), all(in[4]));
                    const Chosen c = sample(in[0], adjusted, in[1], in[2], cpu_kernels);
                    return {c.token_b, c.log_prob_b};
                  });
}

// The kernel chooses as XLA's operations do.
void expect_same(const Drawn& kernel, const Drawn& xla) {
  ASSERT_EQ(kernel.log_probs.size(), xla.log_probs.size());
  for (size_t i = 0; i < xla.log_probs.size(); ++i) {
    if (std::isnan(xla.log_probs[i])) {
      EXPECT_TRUE(std::isnan(kernel.log_probs[i]));
      EXPECT_TRUE(kernel.ids[i] >= 0) << "some token";
    } else {
      EXPECT_EQ(kernel.ids[i], xla.ids[i]) << "row " << i;
      EXPECT_NEAR(kernel.log_probs[i], xla.log_probs[i], 1e-5);
    }
  }
}

// One row of logits, drawn from kRows times with one setting, after a text.
Drawn draw(const std::vector<float>& logits, const Sampling& s, const Tensor& seen) {
  static auto xla = sample_program(false), kernel = sample_program(true);
  const std::vector<Sampling> rows(kRows, s);
  std::vector<int64_t> positions(kRows);
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<Tensor> all{repeated(logits), settings_of(rows), keys_of(rows, positions), seen,
                                bias_of(s, kVocab)};
  const Drawn drawn = run(xla, all);
  expect_same(run(kernel, all), drawn);
  return drawn;
}

// By XLA's operations and by our kernel.
nnx::Compiled greedy_program(bool cpu_kernels) {
  kernels::register_cpu_handlers(*client());
  return nnx::jit("greedy", client(), {}, {inputs()[0]}, {},
                  [=](ir::Graph&, const std::vector<ir::Value>& in) -> std::vector<nnx::Output> {
                    const Chosen c = greedy(in[0], cpu_kernels);
                    return {c.token_b, c.log_prob_b};
                  });
}

Drawn most_likely_of(const std::vector<float>& logits, bool cpu_kernels) {
  static auto plain = greedy_program(false), by_kernel = greedy_program(true);
  return run(cpu_kernels ? by_kernel : plain, {repeated(logits)});
}

// token -> share of the draws.
std::map<int32_t, double> shares(const std::vector<float>& logits, const Sampling& s,
                                 const Tensor& seen = seen_in({}, kVocab)) {
  const Drawn drawn = draw(logits, s, seen);
  std::map<int32_t, double> share;
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  for (size_t r = 0; r < kRows; ++r) {
    const int32_t id = drawn.ids[r];
    share[id] += 1.0 / kRows;
    // Whatever the settings: of the model's own distribution.
    const double expected = static_cast<double>(logits[static_cast<size_t>(id)]) - std::log(sum);
    EXPECT_NEAR(static_cast<double>(drawn.log_probs[r]), expected, 1e-4);
  }
  return share;
}

// softmax(logits / T) over the tokens given.
std::map<int32_t, double> expected(const std::vector<float>& logits, double temperature,
                                   const std::vector<int32_t>& tokens) {
  std::map<int32_t, double> out;
  double sum = 0;
  for (const int32_t id : tokens) {
    const auto logit = static_cast<double>(logits[static_cast<size_t>(id)]);
    sum += out[id] = std::exp(logit / temperature);
  }
  for (auto& [id, p] : out) p /= sum;
  return out;
}

void expect_close(const std::map<int32_t, double>& found, const std::map<int32_t, double>& want) {
  for (const auto& [id, share] : found) EXPECT_TRUE(want.contains(id)) << "token " << id;
  for (const auto& [id, p] : want) {
    const double error = 4 * std::sqrt(p * (1 - p) / kRows) + 1e-9;  // four standard errors
    EXPECT_NEAR(found.contains(id) ? found.at(id) : 0, p, error) << "token " << id;
  }
}

// Probabilities 0.42, 0.25, 0.15, 0.09, 0.06, 0.02, 0.01 or so, not in order.
const std::vector<float> kLogits{1.0F, 3.0F, 0.5F, 2.5F, -1.0F, 2.0F, -0.5F};
const std::vector<int32_t> kAll{0, 1, 2, 3, 4, 5, 6};

TEST(Sampler, WeightedIsTheDistributionItself) {
  expect_close(shares(kLogits, {.temperature = 1, .seed = 1}), expected(kLogits, 1, kAll));
  expect_close(shares(kLogits, {.temperature = 2.5F, .seed = 2}), expected(kLogits, 2.5, kAll));
}

TEST(Sampler, TopKKeepsTheMostLikely) {
  expect_close(shares(kLogits, {.temperature = 1, .top_k = 3, .seed = 3}),
               expected(kLogits, 1, {1, 3, 5}));
  expect_close(shares(kLogits, {.temperature = 1, .top_k = 1, .seed = 4}), {{1, 1.0}});
  expect_close(shares(kLogits, {.temperature = 1, .top_k = 100, .seed = 5}),
               expected(kLogits, 1, kAll));
}

TEST(Sampler, NucleusKeepsTheSmallestSetThatReachesP) {
  const auto p = expected(kLogits, 1, kAll);
  const double two = p.at(1) + p.at(3);
  expect_close(shares(kLogits, {.temperature = 1, .nucleus_p = static_cast<float>(two - 1e-3)}),
               expected(kLogits, 1, {1, 3}));
  expect_close(shares(kLogits, {.temperature = 1, .nucleus_p = static_cast<float>(two + 1e-3)}),
               expected(kLogits, 1, {1, 3, 5}));
  // Taken before the temperature, which then spreads what is left.
  expect_close(shares(kLogits, {.temperature = 3, .nucleus_p = static_cast<float>(two - 1e-3)}),
               expected(kLogits, 3, {1, 3}));
}

TEST(Sampler, CompositeTakesTopKFirst) {
  const auto top3 = expected(kLogits, 1, {1, 3, 5});
  const auto reach = static_cast<float>(top3.at(1) + 1e-3);  // of the three that are left
  expect_close(shares(kLogits, {.temperature = 1, .top_k = 3, .nucleus_p = reach}),
               expected(kLogits, 1, {1, 3}));
}

TEST(Sampler, NoTemperatureIsGreedy) {
  expect_close(shares(kLogits, {}), {{1, 1.0}});
  expect_close(shares({-5, -5, -2, -5, -2, -5, -5}, {}), {{2, 1.0}});  // the first of equals
}

// Whatever the logits: a token of the vocabulary, and a log-probability that is NaN.
TEST(Sampler, LogitsThatAreNotFinite) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<std::vector<float>> bad{std::vector<float>(kVocab, kNaN),
                                      std::vector<float>(kVocab, kInfinity),
                                      std::vector<float>(kVocab, -kInfinity)};
  for (size_t at = 0; at < kVocab; ++at) {
    for (const float x : {kNaN, -kNaN, kInfinity, -kInfinity}) (bad.emplace_back(kLogits))[at] = x;
  }
  for (const std::vector<float>& logits : bad) {
    for (const Drawn& d : {most_likely_of(logits, false), most_likely_of(logits, true),
                           draw(logits, {.temperature = 1}, seen_in({}, kVocab)),
                           draw(logits, {}, seen_in({}, kVocab))}) {
      for (size_t r = 0; r < kRows; ++r) {
        ASSERT_GE(d.ids[r], 0);
        ASSERT_LT(d.ids[r], kVocab);
        ASSERT_TRUE(std::isnan(d.log_probs[r])) << d.log_probs[r];
      }
    }
  }
}

TEST(Sampler, MinPKeepsWhatIsNearTheMostLikely) {
  // Their shares of the most likely one's: 1: 1, 3: 0.61, 5: 0.37, 0: 0.135, 2: 0.082
  expect_close(shares(kLogits, {.temperature = 1, .min_p = 0.36F, .seed = 6}),
               expected(kLogits, 1, {1, 3, 5}));
  expect_close(shares(kLogits, {.temperature = 1, .min_p = 0.37F, .seed = 7}),
               expected(kLogits, 1, {1, 3}));
  expect_close(shares(kLogits, {.temperature = 1, .min_p = 1, .seed = 8}), {{1, 1.0}});
  // Before the temperature, as top-k and nucleus are.
  expect_close(shares(kLogits, {.temperature = 3, .min_p = 0.37F, .seed = 9}),
               expected(kLogits, 3, {1, 3}));
}

// Prompt 1 4 5; output 1 3 3.
Tensor some_seen() {
  const std::vector<int32_t> seen{0, 1 + 2, 0, 2 + 2, 1, 1, 0};
  return Tensor::of<int32_t>(DType::kS32, {1, kVocab}, seen);
}

TEST(Sampler, RepetitionPenaltyOfPromptAndOutput) {
  std::vector<float> after = kLogits;
  after[1] /= 1.5F;
  after[3] /= 1.5F;
  after[4] *= 1.5F;  // below 0
  after[5] /= 1.5F;
  expect_close(shares(kLogits, {.temperature = 1, .repetition_penalty = 1.5F}, some_seen()),
               expected(after, 1, kAll));
}

TEST(Sampler, PresenceAndFrequencyPenaltiesOfTheOutputOnly) {
  std::vector<float> after = kLogits;
  after[1] -= 0.7F;
  after[3] -= 0.7F;
  expect_close(shares(kLogits, {.temperature = 1, .presence_penalty = 0.7F}, some_seen()),
               expected(after, 1, kAll));
  after = kLogits;
  after[1] -= 0.4F;
  after[3] -= 0.8F;
  expect_close(shares(kLogits, {.temperature = 1, .frequency_penalty = 0.4F}, some_seen()),
               expected(after, 1, kAll));
}

TEST(Sampler, BiasThenRepetitionThenTheOtherPenalties) {
  std::vector<float> after = kLogits;
  after[0] += 2;
  after[1] = (after[1] - 4) * 2 - 0.5F;  // below 0 by its bias
  after[3] = after[3] / 2 - 0.5F;
  after[4] *= 2;
  after[5] /= 2;
  const Sampling s{.temperature = 1,
                   .repetition_penalty = 2,
                   .presence_penalty = 0.5F,
                   .logit_bias = {{0, 2.0F}, {1, -4.0F}}};
  expect_close(shares(kLogits, s, some_seen()), expected(after, 1, kAll));
  Sampling limited = s;  // the limits see what the penalties left
  limited.top_k = 2;
  expect_close(shares(kLogits, limited, some_seen()), expected(after, 1, {0, 5}));
  limited.temperature = 0;
  expect_close(shares(kLogits, limited, some_seen()), {{0, 1.0}});
}

TEST(Sampler, AVerySmallTemperatureIsGreedy) {
  for (const float t : {1e-3F, 1e-37F, 1e-44F}) {
    expect_close(shares({5, 90, 80, 90.5F, 1, 2, 3}, {.temperature = t}), {{3, 1.0}});
  }
}

TEST(Sampler, NotesWhatIsFedAndTellsTheMostLikely) {
  auto program =
      nnx::jit("notes", client(), {},
               {{"logits", {DType::kF32, {2, 5}}, {}},
                {"seen", {DType::kS32, {2, 5}}, {}},
                {"token", {DType::kS32, {2}}, {}},
                {"count", {DType::kS32, {}}, {}}},
               {}, [](ir::Graph&, const std::vector<ir::Value>& in) -> std::vector<nnx::Output> {
                 const Alternatives a = most_likely(in[0], in[3]);
                 return {note(in[1], in[2]), a.token_bn, a.log_prob_bn};
               });
  const std::vector<float> logits{0, 1, 3, 1, -1, 2, 2, 2, 2, 2};
  const std::vector<int32_t> seen{0, 1, 0, 0, 0, 3, 0, 0, 0, 0}, tokens{4, 0};
  for (const int32_t count : {0, 3}) {
    const auto out = program({Tensor::of<float>(DType::kF32, {2, 5}, logits),
                              Tensor::of<int32_t>(DType::kS32, {2, 5}, seen),
                              Tensor::of<int32_t>(DType::kS32, {2}, tokens),
                              Tensor::of<int32_t>(DType::kS32, {}, std::vector{count})});
    const Tensor noted = out[0].to_host(), ids = out[1].to_host(), log_probs = out[2].to_host();
    const std::vector<int32_t> expected{0, 1, 0, 0, 2, 5, 0, 0, 0, 0};
    EXPECT_TRUE(std::ranges::equal(noted.data<int32_t>(), expected));
    if (count == 0) continue;
    const double sum = std::log(1 + std::exp(1.0) * 2 + std::exp(3.0) + std::exp(-1.0));
    for (const auto& [at, id, log_prob] :
         std::vector<std::tuple<size_t, int32_t, double>>{{0, 2, 3 - sum},
                                                          {1, 1, 1 - sum},
                                                          {2, 3, 1 - sum},
                                                          {20, 0, std::log(0.2)},
                                                          {21, 1, std::log(0.2)},
                                                          {22, 2, std::log(0.2)}}) {
      EXPECT_EQ(ids.data<int32_t>()[at], id);
      EXPECT_NEAR(static_cast<double>(log_probs.data<float>()[at]), log_prob, 1e-5);
    }
  }
}

TEST(Sampling, RangesAndTheCheapestProgram) {
  const auto error = [](const Sampling& s) -> std::string {
    try {
      check(s, kVocab);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error({}), "");
  EXPECT_EQ(error({.temperature = -1}), "temperature is -1: expected 0 or more");
  EXPECT_EQ(error({.temperature = NAN}), "temperature is nan: expected 0 or more");
  EXPECT_EQ(error({.top_k = -2}), "top k is -2: expected 0 or more");
  EXPECT_EQ(error({.nucleus_p = 1.5F}), "nucleus p is 1.5: expected 0 to 1");
  EXPECT_EQ(error({.min_p = -0.5F}), "min p is -0.5: expected 0 to 1");
  EXPECT_EQ(error({.repetition_penalty = 0}), "repetition penalty is 0: expected 0.01 to 100");
  EXPECT_EQ(error({.presence_penalty = INFINITY}), "presence penalty is inf: expected -100 to 100");
  EXPECT_EQ(error({.logit_bias = {{7, 1.0F}}}), "a logit bias for token 7: the vocabulary has 7");
  EXPECT_EQ(error({.logit_bias = {{2, -INFINITY}}}),
            "the logit bias of token 2 is -inf: expected a number");
  EXPECT_EQ(error({.top_log_probs = 21}), "21 alternatives a token: expected 0 to 20");
  EXPECT_EQ(choice_for({.top_k = 3, .min_p = 0.5F}), Choice::kGreedy);
  EXPECT_EQ(choice_for({.temperature = 1}), Choice::kSample);
  EXPECT_EQ(choice_for({.frequency_penalty = -1}), Choice::kFull);
  EXPECT_EQ(choice_for({.logit_bias = {{1, 1.0F}}}), Choice::kFull);
  EXPECT_EQ(choice_for({.top_log_probs = 1}), Choice::kFull);
}

// A vocabulary in which nearly all tokens are far behind, or nearly none: what the kernel leaves
// out could not have been chosen.
TEST(Sampler, TheKernelDrawsFromManyTokensAsXlaDoes) {
  constexpr int64_t kMany = 20000, kB = 24;
  const auto program = [&](bool cpu_kernels) {
    kernels::register_cpu_handlers(*client());
    return nnx::jit("sample", client(), {},
                    {{"logits", {DType::kF32, {kB, kMany}}, {}},
                     {"settings", {DType::kF32, {kB, kSettings}}, {}},
                     {"keys", {DType::kU32, {kB, 2}}, {}}},
                    {}, [=](ir::Graph&, const std::vector<ir::Value>& in) {
                      const Chosen c = sample(in[0], in[0], in[1], in[2], cpu_kernels);
                      return std::vector<nnx::Output>{c.token_b, c.log_prob_b};
                    });
  };
  auto xla = program(false), kernel = program(true);
  const Sampling settings[] = {{.temperature = 1},
                               {.temperature = 0.2F},
                               {.temperature = 5},
                               {.temperature = 1e-12F},
                               {.temperature = 1, .top_k = 1},
                               {.temperature = 1, .top_k = 50},
                               {.temperature = 2, .top_k = 5000},
                               {.temperature = 1, .top_k = kMany},
                               {.temperature = 1, .nucleus_p = 0.3F},
                               {.temperature = 1, .nucleus_p = 0.95F},
                               {.temperature = 3, .nucleus_p = 0.999F},
                               {.temperature = 1, .min_p = 0.05F},
                               {.temperature = 1, .top_k = 300, .nucleus_p = 0.9F, .min_p = 0.01F},
                               {}};
  std::vector<Sampling> rows;
  std::vector<int64_t> positions;
  for (size_t i = 0; i < kB; ++i) {
    rows.push_back(settings[i % std::size(settings)]);
    rows.back().seed = i;
    positions.push_back(static_cast<int64_t>(i));
  }
  for (const float spread : {0.0F, 1.0F, 4.0F, 30.0F}) {
    std::vector<float> logits;
    for (uint64_t i = 0; i < kB * kMany; ++i) {
      const float u = static_cast<float>(random_bits_at(random_key(7), i)) * 0x1p-32F;
      logits.push_back(spread * (std::sqrt(u) + u * u * u));  // few are large
    }
    const std::vector<Tensor> all{Tensor::of<float>(DType::kF32, {kB, kMany}, logits),
                                  settings_of(rows), keys_of(rows, positions)};
    expect_same(run(kernel, all), run(xla, all));
  }
}

}  // namespace
}  // namespace mt::serve
