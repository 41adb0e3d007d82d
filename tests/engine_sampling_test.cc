// Settings of a row, log-probabilities and longer prefixes through the whole engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/reader.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/test_files.h"
#include "support/small_engine.h"

namespace mt::serve {
namespace {

using testing::kVocab;
using testing::random_tokens;
using testing::Small;
using testing::Tokens;

using Floats = std::vector<float>;

// Programs that tests share are compiled once.
const std::string& cache() {
  static const checkpoint::testing::TempFolder folder;
  return folder.path();
}

Floats row_of(const Tensor& logits, int64_t row) {
  const auto all = logits.data<float>().subspan(static_cast<size_t>(row * kVocab), kVocab);
  return {all.begin(), all.end()};
}

// log of softmax.
Floats log_probs_of(const Floats& logits) {
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  Floats out;
  for (const float x : logits) {
    out.push_back(static_cast<float>(static_cast<double>(x) - std::log(sum)));
  }
  return out;
}

// The formulas of sampling.h, on the host, for a greedy row.
int32_t expected_token(Floats logits, const Sampling& s, const Tokens& prompt,
                       const Tokens& output) {
  for (const auto& [id, bias] : s.logit_bias) logits[static_cast<size_t>(id)] += bias;
  for (int32_t id = 0; id < kVocab; ++id) {
    float& x = logits[static_cast<size_t>(id)];
    const auto times = std::count(output.begin(), output.end(), id);
    if (times > 0 || std::count(prompt.begin(), prompt.end(), id) > 0) {
      x = x > 0 ? x / s.repetition_penalty : x * s.repetition_penalty;
    }
    x -= static_cast<float>(times) * s.frequency_penalty + (times > 0 ? s.presence_penalty : 0);
  }
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

const Sampling kPenalties{.repetition_penalty = 1.3F,
                          .presence_penalty = 0.4F,
                          .frequency_penalty = 0.3F,
                          .logit_bias = {{3, 1.5F}, {11, -2.0F}, {40, 1.0F}}};

TEST(EngineSampling, PenaltiesCountPromptOutputAndForcedTokens) {
  Small small({.slots = 3, .max_length = 60, .chunk = 8}, {}, cache());
  for (const int round : {0, 1}) {  // the second in a slot that has seen other things
    Tokens prompt = random_tokens(13 - 2 * round, 4 + static_cast<uint64_t>(round)), output;
    Prefix prefix = small.engine->prefill(prompt, kPenalties);
    EXPECT_EQ(prefix.first.id,
              expected_token(row_of(prefix.logits, 0), kPenalties, prompt, output));
    output.push_back(prefix.first.id);
    small.engine->insert(std::move(prefix), 2);
    for (int step = 0; step < 30; ++step) {
      if (step % 5 == 4) small.engine->force(2, output.back() = (step * 7) % 64);
      const Token t = small.engine->generate()[2];
      ASSERT_EQ(t.id, expected_token(row_of(small.engine->logits(), 2), kPenalties, prompt, output))
          << step;
      output.push_back(t.id);
    }
    Tokens all = prompt;
    all.insert(all.end(), output.begin(), output.end() - 1);
    EXPECT_EQ(small.engine->tokens(2), all);
  }
}

struct Row {
  Tokens ids;
  Floats log_probs;
  bool operator==(const Row&) const = default;
};

// A request in a slot while others, of every kind, are in the others.
Row run(Engine& engine, const Sampling& s, int64_t slot, const std::vector<Sampling>& others) {
  Tokens prompt = random_tokens(11, 5);
  for (size_t i = 0; i < others.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    if (at == slot) continue;
    engine.insert(engine.prefill(random_tokens(5 + 3 * at, 100 + i), others[i]), at);
  }
  Prefix prefix = engine.prefill(prompt, s);
  Row row{{prefix.first.id}, {prefix.first.log_prob}};
  engine.insert(std::move(prefix), slot);
  for (int i = 0; i < 12; ++i) {
    const Token t = engine.generate()[static_cast<size_t>(slot)];
    row.ids.push_back(t.id);
    row.log_probs.push_back(t.log_prob);
  }
  for (int64_t i = 0; i < engine.options().slots; ++i) engine.release(i);
  return row;
}

TEST(EngineSampling, ARowDependsOnItsOwnSettingsAndSeedAlone) {
  Small small({.slots = 3, .max_length = 60, .chunk = 8}, {}, cache());
  Sampling full = kPenalties, other = kPenalties;
  full.temperature = 1.5F;
  full.min_p = 0.01F;
  full.seed = 9;
  other.logit_bias = {{1, 50.0F}, {2, 40.0F}};
  other.top_log_probs = 3;
  const Sampling draws{.temperature = 1.5F, .top_k = 30, .seed = 9};
  const std::vector<std::vector<Sampling>> neighbours{
      {}, {draws, draws, draws}, {other, other, other}, {{}, other, draws}};
  std::vector<Row> alone;
  for (const Sampling& s : {Sampling{}, draws, full}) {
    alone.push_back(run(*small.engine, s, 0, {}));
    for (const auto& others : neighbours) {
      for (const int64_t slot : {0, 2}) {
        EXPECT_EQ(run(*small.engine, s, slot, others), alone.back()) << slot << " " << alone.size();
      }
    }
  }
  Sampling reseeded = draws;
  reseeded.seed = 10;
  EXPECT_NE(run(*small.engine, reseeded, 0, {}).ids, alone[1].ids);
  EXPECT_NE(alone[2].ids, alone[1].ids);
}

// A slot's former bias and penalties are gone, in the same program.
TEST(EngineSampling, ASlotForgetsItsFormerTenant) {
  Small small({.slots = 3, .max_length = 60, .chunk = 8}, {}, cache());
  const Row plain = run(*small.engine, {}, 0, {});
  Sampling biased;
  biased.logit_bias = {{7, 100.0F}};
  EXPECT_EQ(run(*small.engine, biased, 0, {}).ids, Tokens(13, 7));
  EXPECT_EQ(run(*small.engine, {}, 0, {{}, biased}).ids, plain.ids);
  Sampling other;
  other.logit_bias = {{9, 100.0F}};
  EXPECT_EQ(run(*small.engine, other, 0, {}).ids, Tokens(13, 9));
}

TEST(EngineSampling, TheMostLikelyTokensOfTheModelsOwnDistribution) {
  Small small({.slots = 3, .max_length = 60, .chunk = 8}, {}, cache());
  Sampling s = kPenalties;
  s.top_log_probs = 4;
  const auto expect_top = [](const Token& t, const Floats& logits) {
    const Floats log_probs = log_probs_of(logits);
    Tokens order(kVocab);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return log_probs[static_cast<size_t>(a)] > log_probs[static_cast<size_t>(b)];
    });
    ASSERT_EQ(t.top.size(), 4U);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(t.top[i].id, order[i]);
      EXPECT_NEAR(t.top[i].log_prob, log_probs[static_cast<size_t>(order[i])], 1e-5);
    }
    EXPECT_NEAR(t.log_prob, log_probs[static_cast<size_t>(t.id)], 1e-5);
  };
  Prefix prefix = small.engine->prefill(random_tokens(9, 1), s);
  expect_top(prefix.first, row_of(prefix.logits, 0));
  small.engine->insert(std::move(prefix), 1);
  small.engine->insert(small.engine->prefill(random_tokens(4, 2), {.top_log_probs = 20}), 0);
  for (int i = 0; i < 5; ++i) {
    const std::vector<Token> tokens = small.engine->generate();
    expect_top(tokens[1], row_of(small.engine->logits(), 1));
    EXPECT_EQ(tokens[0].top.size(), 20U);
  }
}

// Log-probabilities of a prompt's tokens are those of the forced steps.
TEST(EngineSampling, LogProbabilitiesOfThePrompt) {
  const Tokens text = random_tokens(30, 3);
  for (const int64_t chunk : {3, 8, 32}) {
    Small small({.slots = 3, .max_length = 60, .chunk = chunk}, {}, cache());
    Floats forced;
    small.engine->insert(small.engine->prefill(std::span(text).first(1), {}), 0);
    for (size_t i = 1; i < text.size(); ++i) {
      const Tensor logits = i == 1 ? small.engine->prefill(std::span(text).first(1), {}).logits
                                   : small.engine->logits();
      forced.push_back(log_probs_of(row_of(logits, 0))[static_cast<size_t>(text[i])]);
      small.engine->force(0, text[i]);
      small.engine->generate();
    }
    for (const Sampling& s : {Sampling{}, kPenalties}) {
      const Prefix prefix = small.engine->prefill(text, s, {.log_probs = true});
      ASSERT_EQ(prefix.log_probs.size(), text.size());
      EXPECT_TRUE(std::isnan(prefix.log_probs[0]));
      for (size_t i = 1; i < text.size(); ++i) {
        ASSERT_NEAR(prefix.log_probs[i], forced[i - 1], 1e-4) << chunk << " " << i;
      }
    }
    EXPECT_TRUE(small.engine->prefill(text, {}).log_probs.empty());
  }
}

// A text in two parts, the second on a slot's caches, equals one prefill of the whole, and the
// slot it came from goes on as if nothing had been.
TEST(EngineSampling, ExtendingASlotEqualsOnePrefill) {
  const Tokens text = random_tokens(40, 6);
  for (const int64_t chunk : {3, 8}) {
    Small small({.slots = 3, .max_length = 60, .chunk = chunk}, {}, cache());
    Engine& engine = *small.engine;
    for (const size_t first : {size_t{1}, size_t{8}, size_t{17}, size_t{33}}) {
      for (const Sampling& s : {Sampling{}, kPenalties}) {
        engine.insert(engine.prefill(std::span(text).first(first), s), 0);
        for (int i = 0; i < 4; ++i) {  // some of the text by generation
          engine.force(0, text[first + static_cast<size_t>(i)]);
          engine.generate();
        }
        const auto rest = std::span(text).subspan(first + 4);
        Prefix extended = engine.extend(0, rest, s, {.log_probs = true});
        Prefix whole = engine.prefill(text, s, {.log_probs = true});
        EXPECT_EQ(extended.length, 40);
        EXPECT_EQ(extended.tokens, text);
        ASSERT_EQ(extended.log_probs.size(), rest.size());
        for (size_t i = 1; i < rest.size(); ++i) {
          ASSERT_NEAR(extended.log_probs[i], whole.log_probs[first + 4 + i], 1e-4);
        }
        ASSERT_EQ(extended.first.id, whole.first.id) << chunk << " " << first;
        const int64_t length = engine.length(0);
        EXPECT_EQ(length, static_cast<int64_t>(first) + 4);
        engine.insert(std::move(extended), 1);
        engine.insert(std::move(whole), 0);
        for (int i = 0; i < 8; ++i) {
          const std::vector<Token> t = engine.generate();
          ASSERT_EQ(t[0].id, t[1].id) << chunk << " " << first << " " << i;
          ASSERT_NEAR(t[0].log_prob, t[1].log_prob, 1e-4);
        }
      }
    }
  }
}

// What one run tells: tokens, then log-probabilities of the prompt, of tokens and of alternatives.
std::pair<Tokens, Floats> told_by(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"base_num_decoder_layers=6", "base_num_kv_heads=4"});
  Small small({.slots = 4, .max_length = 60, .chunk = 8}, flags, cache());
  Engine& engine = *small.engine;
  Sampling s = kPenalties;
  s.temperature = 1;
  s.top_k = 40;
  s.nucleus_p = 0.95F;
  s.top_log_probs = 3;
  const Tokens text = random_tokens(30, 8);
  Prefix prefix = engine.prefill(std::span(text).first(19), s, {.log_probs = true});
  Tokens ids;
  Floats log_probs(prefix.log_probs.begin() + 1, prefix.log_probs.end());
  const auto add = [&](const Token& t) {
    ids.push_back(t.id);
    log_probs.push_back(t.log_prob);
    for (const Alternative& a : t.top) {
      ids.push_back(a.id);
      log_probs.push_back(a.log_prob);
    }
  };
  add(prefix.first);
  engine.insert(std::move(prefix), 1);
  for (int i = 0; i < 6; ++i) add(engine.generate()[1]);
  engine.insert(engine.extend(1, std::span(text).subspan(19), s), 3);
  for (int i = 0; i < 6; ++i) add(engine.generate()[3]);
  return {ids, log_probs};
}

TEST(EngineSampling, FourDevicesTellWhatOneDoes) {
  const auto one = told_by({});
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"ici_tensor_parallelism=4"},
        {"ici_fsdp_parallelism=2", "ici_tensor_parallelism=2"}}) {
    const auto found = told_by(flags);
    EXPECT_EQ(found.first, one.first) << flags[0];
    ASSERT_EQ(found.second.size(), one.second.size());
    for (size_t i = 0; i < one.second.size(); ++i) {
      EXPECT_NEAR(found.second[i], one.second[i], 1e-4) << flags[0] << " " << i;
    }
  }
}

TEST(EngineSampling, Refusals) {
  Small small({.slots = 1, .max_length = 10});
  Engine& engine = *small.engine;
  const auto error = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kConfig);
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error([&] { engine.prefill(Tokens{1}, {.min_p = 2}); }), "min p is 2: expected 0 to 1");
  engine.insert(engine.prefill(Tokens{1, 2, 3}, {}), 0);
  EXPECT_EQ(error([&] { engine.extend(0, Tokens(7, 1), {}); }),
            "a prompt of 7 tokens: expected 1 to 6");
  EXPECT_EQ(error([&] { engine.extend(0, {}, {}); }), "a prompt of 0 tokens: expected 1 to 6");
  EXPECT_EQ(error([&] { engine.extend(1, Tokens{1}, {}); }), "slot 1 of 1");
  EXPECT_EQ(error([&] { engine.extend(0, Tokens{64}, {}); }),
            "token 64 in the prompt: the vocabulary has 64");
}

// transformers' log-probabilities on the real weights: prompt and forced tokens as one prompt, two
// of them longer than the window and several chunks.
TEST(EngineSampling, LogProbabilitiesOfPromptsOnTheRealWeights) {
  const std::string weights = MT_DEPS "/weights/gemma-3-270m-Q4_K_M.gguf";
  ASSERT_TRUE(exists(weights)) << weights << " is missing: run make setup";
  const auto config = mt::testing::config_of({"model_name=gemma3-270m", "dtype=float32",
                                              "jax_cache_dir=", "dequantize_weights=true",
                                              "load_parameters_path=" + weights});
  const auto devices = models::gemma3::open_devices(config);
  Engine engine(config, devices,
                {.slots = 1, .max_length = 1300, .chunk = 256, .cache_dtype = DType::kF32});
  engine.load_params();
  const Json golden = Json::parse(read_file(MT_SOURCE_DIR "/tests/golden/real/forced_top5.json"));
  int compared = 0;
  for (const Json& p : golden.as_array()) {
    Tokens tokens;
    for (const char* part : {"ids", "forced"}) {
      for (const Json& id : p.at(part).as_array()) {
        tokens.push_back(static_cast<int32_t>(id.as_int()));
      }
    }
    const size_t prompt = p.at("ids").as_array().size();
    const Prefix prefix = engine.prefill(tokens, {}, {.log_probs = true});
    const auto& top = p.at("top").as_array();
    for (size_t step = 0; step < top.size(); ++step) {
      for (const Json& pair : top[step].as_array()) {
        if (pair.as_array()[0].as_int() != tokens[prompt + step]) continue;
        ++compared;
        EXPECT_NEAR(static_cast<double>(prefix.log_probs[prompt + step]),
                    pair.as_array()[1].as_double(), 2e-3)
            << prompt << " " << step;
      }
    }
  }
  EXPECT_GE(compared, 370);  // nearly every forced token is among the five
}

// The tiny checkpoint of tests/golden/hf with one NaN.
TEST(EngineSampling, WeightsWithANaNAreOneError) {
  const checkpoint::testing::TempFolder folder;
  const std::string from = MT_SOURCE_DIR "/tests/golden/hf";
  const auto reader = checkpoint::open(from + "/model.safetensors");
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const std::string& name : reader->names()) {
    Tensor t = reader->read(name);
    if (name == "model.norm.weight") t.mutable_data<float>()[5] = NAN;
    tensors.emplace_back(name, t);
  }
  checkpoint::write_safetensors(folder.path() + "/model.safetensors", tensors);
  write_file(folder.path() + "/config.json", read_file(from + "/config.json"));
  const auto config = mt::testing::config_of(
      {"model_name=gemma3-4b", "override_model_config=True", "base_num_decoder_layers=8",
       "base_emb_dim=64", "base_num_query_heads=4", "base_num_kv_heads=2", "head_dim=16",
       "base_mlp_dim=128", "vocab_size=256", "sliding_window_size=8",
       "rope_linear_scaling_factor=1", "dtype=float32",
       "jax_cache_dir=", "load_parameters_path=" + folder.path()});
  const auto devices = models::gemma3::open_devices(config);
  Engine engine(config, devices, {.slots = 1, .max_length = 10});
  engine.load_params();
  for (const Sampling& s : {Sampling{}, Sampling{.temperature = 1}, kPenalties}) {
    try {
      engine.prefill(Tokens{1, 2, 3}, s);
      FAIL() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kIo);
      EXPECT_EQ(std::string(e.what()),
                "the logits after 3 tokens are not finite: the weights of load_parameters_path='" +
                    folder.path() +
                    "' hold a NaN or infinity, or dtype=float32 is too narrow for them");
    }
  }
}

}  // namespace
}  // namespace mt::serve
