// The engine against whole forward passes and against transformers on the real weights.
#include "serve/engine.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/real_goldens.h"
#include "support/small_engine.h"

namespace mt::serve {
namespace {

using testing::kVocab;
using testing::random_tokens;
using testing::RealGoldens;
using testing::run_goldens;
using testing::Small;
using testing::Tokens;

// Logits of every position by one forward pass without caches: [length, V].
Tensor whole_pass(Small& small, const Tokens& tokens) {
  const auto model = models::gemma3::make_model(small.config, small.devices.partitioner);
  models::gemma3::give_parameters(*model, nullptr, small.config, small.devices);
  const auto length = static_cast<int64_t>(tokens.size());
  Tokens positions, ones(tokens.size(), 1);
  for (int32_t i = 0; i < length; ++i) positions.push_back(i);
  auto program = train::trace_logits(*model, 1, length)->lower().compile(small.devices.client);
  const Shape shape{1, length};
  return program({Tensor::of<int32_t>(DType::kS32, shape, tokens),
                  Tensor::of<int32_t>(DType::kS32, shape, positions),
                  Tensor::of<int32_t>(DType::kS32, shape, ones)})[0]
      .to_host();
}

double largest_difference(const Tensor& a, size_t row_a, const Tensor& b, size_t row_b) {
  double worst = 0;
  for (size_t i = 0; i < kVocab; ++i) {
    const float x = a.data<float>()[row_a * kVocab + i], y = b.data<float>()[row_b * kVocab + i];
    worst = std::max(worst, static_cast<double>(std::abs(x - y)));
  }
  return worst;
}

// A prompt of every length up to three windows, in chunks of every kind, then generation to the end
// of the slot: each step's logits are those of the whole pass.
TEST(Engine, PrefillInPiecesAndGenerationEqualOnePass) {
  const Tokens text = random_tokens(30, 1);
  for (const int64_t chunk : {1, 3, 8, 16, 64}) {
    Small small({.slots = 2, .max_length = 30, .chunk = chunk});
    const Tensor expected = whole_pass(small, text);
    for (const size_t prompt :
         {size_t{1}, size_t{7}, size_t{8}, size_t{9}, size_t{17}, size_t{24}}) {
      Prefix prefix = small.engine->prefill(std::span(text).first(prompt), {});
      EXPECT_LT(largest_difference(prefix.logits, 0, expected, prompt - 1), 1e-4)
          << "chunks of " << chunk << ", prompt of " << prompt;
      small.engine->insert(std::move(prefix), 1);  // longer and shorter ones before it
      for (size_t at = prompt; at < text.size() - 1; ++at) {
        small.engine->force(1, text[at]);
        small.engine->generate();
        ASSERT_LT(largest_difference(small.engine->logits(), 1, expected, at), 1e-4)
            << "chunks of " << chunk << ", prompt of " << prompt << ", token " << at;
      }
      EXPECT_EQ(small.engine->length(1), 29);
    }
  }
}

// Caches of 8-bit integers: near the whole pass, and the same however the prompt was cut.
TEST(Engine, IntegerCachesStayNearAndDontDependOnPieces) {
  const Tokens text = random_tokens(30, 1);
  Tensor first;
  for (const std::vector<std::string>& mesh :
       {std::vector<std::string>{}, {"ici_tensor_parallelism=2"}}) {
    for (const int64_t chunk : {3, 64}) {
      Small small({.slots = 1, .max_length = 30, .chunk = chunk, .cache_dtype = DType::kS8}, mesh);
      const Tensor expected = whole_pass(small, text);
      small.engine->insert(small.engine->prefill(std::span(text).first(20), {}), 0);
      for (size_t at = 20; at < text.size() - 1; ++at) {
        small.engine->force(0, text[at]);
        small.engine->generate();
      }
      const Tensor& last = small.engine->logits();
      EXPECT_LT(largest_difference(last, 0, expected, text.size() - 2), 0.1) << chunk;
      EXPECT_GT(largest_difference(last, 0, expected, text.size() - 2), 1e-6) << chunk;
      if (first.size() == 0) first = last;
      EXPECT_LT(largest_difference(last, 0, first, 0), 2e-3) << chunk;
    }
  }
}

// The same request alone and between others, in any slot: the same tokens and bits.
TEST(Engine, ARowDoesNotDependOnItsNeighbours) {
  const auto run = [](Engine& engine, int64_t slot, int64_t neighbours) {
    for (int64_t s = 0; s < neighbours; ++s) {
      if (s == slot) continue;
      const Tokens other = random_tokens(5 + 3 * s, 100 + static_cast<uint64_t>(s));
      engine.insert(engine.prefill(other, {.temperature = 1.5F, .seed = 7}), s);
    }
    const Tokens text = random_tokens(11, 5);
    Prefix prefix = engine.prefill(text, {.temperature = 0.8F, .top_k = 20, .seed = 9});
    std::vector<float> out{static_cast<float>(prefix.first.id), prefix.first.log_prob};
    engine.insert(std::move(prefix), slot);
    for (int i = 0; i < 12; ++i) {
      const Token t = engine.generate()[static_cast<size_t>(slot)];
      out.push_back(static_cast<float>(t.id));
      out.push_back(t.log_prob);
    }
    for (int64_t s = 0; s < engine.options().slots; ++s) engine.release(s);
    return out;
  };
  Small small({.slots = 4, .max_length = 40, .chunk = 8});
  const std::vector<float> alone = run(*small.engine, 0, 0);
  for (const int64_t slot : {0, 2, 3}) EXPECT_EQ(run(*small.engine, slot, 4), alone) << slot;
}

TEST(Engine, LocalLayersKeepTheirWindowOnly) {
  Small a({.slots = 2, .max_length = 100}), b({.slots = 2, .max_length = 200});
  // 7 local layers of a window of 8, one global: only that one grows.
  const int64_t token = 2 * 2 * 8 * 4;  // key and value, heads, dim, bytes
  EXPECT_EQ(a.engine->cache_bytes_per_slot(), token * (7 * 8 + 100));
  EXPECT_EQ(b.engine->cache_bytes_per_slot(), token * (7 * 8 + 200));
  // A single slot has room for guesses of 7 tokens besides.
  Small c({.slots = 1, .max_length = 100});
  EXPECT_EQ(c.engine->cache_bytes_per_slot(), token * (7 * (8 + 7) + 100));
}

// B14: whatever the configuration says of training.
TEST(Engine, DropsNothingOut) {
  const Tokens text = random_tokens(11, 5);
  std::vector<std::vector<float>> logits;
  for (const char* rate : {"dropout_rate=0.0", "dropout_rate=0.5"}) {
    Small small({.slots = 1, .max_length = 20}, {rate, "enable_dropout=True"});
    const Prefix prefix = small.engine->prefill(text, {});
    const auto row = prefix.logits.data<float>();
    logits.emplace_back(row.begin(), row.end());
  }
  EXPECT_EQ(logits[0], logits[1]);
}

TEST(Engine, RefusesWhatDoesNotFit) {
  Small small({.slots = 1, .max_length = 10});
  const auto error = [&](const Tokens& tokens) -> std::string {
    try {
      small.engine->prefill(tokens, {});
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error({}), "a prompt of 0 tokens: expected 1 to 9");
  EXPECT_EQ(error(Tokens(10, 1)), "a prompt of 10 tokens: expected 1 to 9");
  EXPECT_EQ(error({1, 64}), "token 64 in the prompt: the vocabulary has 64");
  EXPECT_EQ(error({-1}), "token -1 in the prompt: the vocabulary has 64");
}

TEST(Engine, RealWeightsInFloat32GiveTransformersLogProbabilities) {
  RealGoldens golden;
  run_goldens(golden, {"dequantize_weights=true"});
  EXPECT_LT(golden.worst, 2e-3);
  EXPECT_EQ(golden.different, 0);
}

// The kernels round activations to 8 bits: another token may win where two are nearly as likely.
TEST(Engine, RealWeightsInTheirBlocksChooseTheSameTokens) {
  RealGoldens golden;
  run_goldens(golden, {});
  EXPECT_LE(golden.different, golden.steps * 3 / 100);
  EXPECT_LT(golden.widest_gap, 0.1);
  RecordProperty("different", static_cast<int>(golden.different));
  std::printf("%lld of %lld steps chose another token, the widest gap %.3f\n",
              static_cast<long long>(golden.different), static_cast<long long>(golden.steps),
              golden.widest_gap);
}

}  // namespace
}  // namespace mt::serve
