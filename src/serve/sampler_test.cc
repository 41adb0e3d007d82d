// Whole distributions: many draws against the probabilities that the settings leave.
#include "serve/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/random.h"
#include "ir/passes.h"
#include "nnx/jit.h"

namespace mt::serve {
namespace {

constexpr int64_t kRows = 4000, kVocab = 7;

std::shared_ptr<const pjrt::Client> client() {
  static const auto the_client = pjrt::Client::create({.platform = "cpu", .device_count = 1});
  return the_client;
}

// One row of logits, drawn from kRows times with one setting: token -> share of the draws.
std::map<int32_t, double> shares(const std::vector<float>& logits, const Sampling& s) {
  static auto program =
      nnx::jit("sample", client(), {},
               {{"logits", {DType::kF32, {kRows, kVocab}}, {}},
                {"temperature", {DType::kF32, {kRows}}, {}},
                {"top_k", {DType::kS32, {kRows}}, {}},
                {"nucleus_p", {DType::kF32, {kRows}}, {}},
                {"keys", {DType::kU32, {kRows, 2}}, {}}},
               {}, [](ir::Graph&, const std::vector<ir::Value>& in) -> std::vector<nnx::Output> {
                 const Chosen c = sample(in[0], {in[1], in[2], in[3], in[4]});
                 return {c.token_b, c.log_prob_b};
               });
  std::vector<float> all, temperature(kRows, s.temperature), nucleus(kRows, s.nucleus_p);
  std::vector<int32_t> top_k(kRows, s.top_k);
  std::vector<uint32_t> keys;
  for (uint32_t r = 0; r < kRows; ++r) {
    all.insert(all.end(), logits.begin(), logits.end());
    const RandomKey key = fold_in(random_key(s.seed), r);
    keys.insert(keys.end(), key.begin(), key.end());
  }
  const auto out = program({Tensor::of<float>(DType::kF32, {kRows, kVocab}, all),
                            Tensor::of<float>(DType::kF32, {kRows}, temperature),
                            Tensor::of<int32_t>(DType::kS32, {kRows}, top_k),
                            Tensor::of<float>(DType::kF32, {kRows}, nucleus),
                            Tensor::of<uint32_t>(DType::kU32, {kRows, 2}, keys)});
  std::map<int32_t, double> share;
  const Tensor tokens = out[0].to_host(), log_probs = out[1].to_host();
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  for (size_t r = 0; r < kRows; ++r) {
    const int32_t id = tokens.data<int32_t>()[r];
    share[id] += 1.0 / kRows;
    // Whatever the settings: of the model's own distribution.
    const double expected = static_cast<double>(logits[static_cast<size_t>(id)]) - std::log(sum);
    EXPECT_NEAR(static_cast<double>(log_probs.data<float>()[r]), expected, 1e-4);
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

}  // namespace
}  // namespace mt::serve
