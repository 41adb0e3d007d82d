// The engine against whole forward passes and against transformers on the real weights.
#include "serve/engine.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "support/small_engine.h"

namespace mt::serve {
namespace {

using testing::kVocab;
using testing::random_tokens;
using testing::Small;
using testing::Tokens;

constexpr const char* kWeights = MT_DEPS "/weights/gemma-3-270m-Q4_K_M.gguf";

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

struct Forced {
  Tokens ids, forced;
  const Json* top;
};

// transformers' five best log-probabilities before each forced token, all prompts at once.
class RealGoldens {
 public:
  RealGoldens()
      : golden_(Json::parse(read_file(MT_SOURCE_DIR "/tests/golden/real/forced_top5.json"))) {
    for (const Json& p : golden_.as_array()) {
      prompts.push_back({ints(p.at("ids")), ints(p.at("forced")), &p.at("top")});
    }
  }
  // Compares one step's logits; counts steps whose most likely token is another.
  void check(const Forced& p, size_t step, std::span<const float> logits) {
    double top = -1e30, sum = 0;
    size_t best = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (static_cast<double>(logits[i]) > top) top = static_cast<double>(logits[best = i]);
    }
    for (const float x : logits) sum += std::exp(static_cast<double>(x) - top);
    const auto& expected = p.top->as_array()[step].as_array();
    for (const Json& pair : expected) {
      const auto id = static_cast<size_t>(pair.as_array()[0].as_int());
      const double found = static_cast<double>(logits[id]) - top - std::log(sum);
      worst = std::max(worst, std::abs(found - pair.as_array()[1].as_double()));
    }
    const auto best_two = [&](size_t i) { return expected[i].as_array()[1].as_double(); };
    if (best != static_cast<size_t>(expected[0].as_array()[0].as_int())) {
      ++different;
      widest_gap = std::max(widest_gap, best_two(0) - best_two(1));
    }
    ++steps;
  }
  std::vector<Forced> prompts;
  double worst = 0;
  double widest_gap = 0;  // between the two most likely where another token came out on top
  int64_t different = 0, steps = 0;

 private:
  static Tokens ints(const Json& json) {
    Tokens out;
    for (const Json& x : json.as_array()) out.push_back(static_cast<int32_t>(x.as_int()));
    return out;
  }
  Json golden_;
};

// All prompts in a slot each, forced tokens fed one by one.
void run_goldens(RealGoldens& golden, const std::string& dequantise) {
  ASSERT_TRUE(exists(kWeights)) << kWeights << " is missing: run make setup";
  ASSERT_EQ(golden.prompts.size(), 12U);
  const auto config = mt::testing::config_of({"model_name=gemma3-270m", "dtype=float32",
                                              "jax_cache_dir=", "dequantize_weights=" + dequantise,
                                              std::string("load_parameters_path=") + kWeights});
  const auto devices = models::gemma3::open_devices(config);
  const auto slots = static_cast<int64_t>(golden.prompts.size());
  Engine engine(config, devices,
                {.slots = slots,
                 .max_length = 1300,
                 .chunk = 256,
                 .cache_dtype = DType::kF32,
                 .keep_logits = true});
  engine.load_params();
  const auto vocab = static_cast<size_t>(engine.sizes().vocab_size);
  for (int64_t s = 0; s < slots; ++s) {
    const Forced& p = golden.prompts[static_cast<size_t>(s)];
    Prefix prefix = engine.prefill(p.ids, {});
    golden.check(p, 0, prefix.logits.data<float>());
    engine.insert(std::move(prefix), s);
  }
  for (size_t step = 1; step < 48; ++step) {
    for (size_t s = 0; s < golden.prompts.size(); ++s) {
      const Tokens& forced = golden.prompts[s].forced;
      if (step < forced.size()) engine.force(static_cast<int64_t>(s), forced[step - 1]);
    }
    engine.generate();
    for (size_t s = 0; s < golden.prompts.size(); ++s) {
      if (step >= golden.prompts[s].forced.size()) continue;
      golden.check(golden.prompts[s], step,
                   engine.logits().data<float>().subspan(s * vocab, vocab));
    }
  }
  EXPECT_EQ(golden.steps, 376);
}

TEST(Engine, RealWeightsInFloat32GiveTransformersLogProbabilities) {
  RealGoldens golden;
  run_goldens(golden, "true");
  EXPECT_LT(golden.worst, 2e-3);
  EXPECT_EQ(golden.different, 0);
}

// The kernels round activations to 8 bits: another token may win where two are nearly as likely.
TEST(Engine, RealWeightsInTheirBlocksChooseTheSameTokens) {
  RealGoldens golden;
  run_goldens(golden, "false");
  EXPECT_LE(golden.different, golden.steps * 3 / 100);
  EXPECT_LT(golden.widest_gap, 0.1);
  RecordProperty("different", static_cast<int>(golden.different));
  std::printf("%lld of %lld steps chose another token, the widest gap %.3f\n",
              static_cast<long long>(golden.different), static_cast<long long>(golden.steps),
              golden.widest_gap);
}

}  // namespace
}  // namespace mt::serve
