// Guessing ahead gives the tokens and log-probabilities of single steps, to the last bit.
#include "serve/lookahead.h"

#include <gtest/gtest.h>

#include <bit>

#include "base/error.h"
#include "support/small_engine.h"

namespace mt::serve {
namespace {

using testing::random_tokens;
using testing::small_config;
using testing::Tokens;

constexpr const char* kWeights = MT_DEPS "/weights/gemma-3-270m-Q4_K_M.gguf";

config::Config real_config() {
  return mt::testing::config_of({"model_name=gemma3-270m",
                                 std::string("load_parameters_path=") + kWeights, "dtype=float32",
                                 "jax_cache_dir="});
}

TEST(PromptLookup, GuessesWhatFollowedTheLatestPlaceLikeTheEnd) {
  PromptLookup text;
  EXPECT_TRUE(text.guess(3).empty());
  for (const int32_t t : {1, 2, 3, 4, 5, 1, 2, 3}) text.add(t);
  EXPECT_EQ(text.guess(3), (Tokens{4, 5, 1}));
  EXPECT_EQ(text.guess(1), Tokens{4});
  EXPECT_EQ(text.guess(3, [](int32_t token) { return token == 5; }), (Tokens{4, 5}));
  EXPECT_EQ(text.guess(3, [](int32_t token) { return token == 9; }), (Tokens{4, 5, 1}));
  text.add(9);  // 3 9 has not been seen
  EXPECT_TRUE(text.guess(3).empty());
  for (const int32_t t : {8, 2, 3})
    text.add(t);  // 8 2 3 hasn't, but 2 3 has: the latest time 9 came
  EXPECT_EQ(text.guess(2), (Tokens{9, 8}));
  PromptLookup same;
  for (int i = 0; i < 5; ++i) same.add(7);
  EXPECT_EQ(same.guess(4), Tokens{7});  // no more than the text has
}

TEST(Payoff, IsOffWhereItDoesNotPayAndTriesAgain) {
  Payoff good, bad;
  for (int i = 0; i < 10; ++i) {
    good.note(false, 1, 0.010);
    bad.note(false, 1, 0.010);
    good.note(true, 3, 0.020);
    bad.note(true, 1, 0.020);
  }
  EXPECT_TRUE(good.pays());
  EXPECT_FALSE(bad.pays());
  for (int i = 0; i < 32; ++i) bad.note(false, 1, 0.010);
  EXPECT_TRUE(bad.pays());
}

std::vector<uint64_t> steps(const config::Config& config, const models::gemma3::Devices& devices,
                            EngineOptions options, const Tokens& prompt, const Sampling& sampling,
                            int64_t count, int64_t* right = nullptr) {
  Engine engine(config, devices, options);
  engine.load_params();
  Prefix prefix = engine.prefill(prompt, sampling);
  Tokens text = prompt;
  text.push_back(prefix.first.id);
  engine.insert(std::move(prefix), 0);
  Lookahead lookahead(engine, text, sampling);
  std::vector<uint64_t> out;
  while (std::ssize(out) < count) {
    for (const Token& t : lookahead.next()) {
      out.push_back(static_cast<uint64_t>(t.id) << 32 | std::bit_cast<uint32_t>(t.log_prob));
    }
  }
  if (right != nullptr) *right = lookahead.right();
  out.resize(static_cast<size_t>(count));
  return out;
}

TEST(Lookahead, RealWeightsInTheirBlocks) {
  const config::Config config = real_config();
  const auto devices = models::gemma3::open_devices(config);
  const Tokens short_prompt{2, 236777, 2765, 531};  // "I love to"
  Tokens long_prompt = short_prompt;                // generation crosses the window's end, at 512
  while (long_prompt.size() < 500)
    long_prompt.push_back(1000 + static_cast<int32_t>(long_prompt.size() % 9));
  const auto compare = [&](const Tokens& prompt, const Sampling& sampling) {
    const int64_t length = std::ssize(prompt) + 100;
    int64_t right = 0;
    const auto plain = steps(config, devices, {.max_length = length}, prompt, sampling, 80);
    EXPECT_EQ(
        steps(config, devices, {.max_length = length, .ahead = 3}, prompt, sampling, 80, &right),
        plain);
    EXPECT_GT(right, 0) << "nothing was guessed";
  };
  compare(short_prompt, {});
  compare(short_prompt, {.temperature = 0.6F, .seed = 5});
  compare(long_prompt, {});
}

TEST(Lookahead, RefusesWhatItCannotDo) {
  const config::Config config = small_config();
  const auto devices = models::gemma3::open_devices(config);
  EXPECT_THROW(Engine(config, devices, {.slots = 2, .max_length = 40, .ahead = 3}), Error);
  EXPECT_THROW(Engine(config, devices, {.max_length = 40, .ahead = 8}), Error);
  // Random weights meet XLA's products, where a row's last bits depend on how many there are.
  Engine engine(config, devices, {.max_length = 40, .ahead = 3});
  engine.load_params();
  EXPECT_EQ(engine.options().ahead, 0);
  EXPECT_THROW(engine.generate_ahead(Tokens{1}), Error);
}

TEST(Lookahead, RefusesWhatDoesNotFit) {
  const config::Config config = real_config();
  const auto devices = models::gemma3::open_devices(config);
  Engine engine(config, devices, {.max_length = 40, .ahead = 3});
  engine.load_params();
  EXPECT_THROW(engine.generate_ahead(Tokens{1}), Error) << "nothing in the slot";
  engine.insert(engine.prefill(random_tokens(37, 1), {}), 0);
  EXPECT_THROW(engine.generate_ahead(Tokens{1, 2}), Error) << "no room";
  EXPECT_THROW(engine.generate_ahead(Tokens{}), Error);
  // With penalties every step is a plain one.
  const Sampling penalties{.repetition_penalty = 1.2F};
  engine.insert(engine.prefill(Tokens{1, 2, 3, 1, 2, 3}, penalties), 0);
  EXPECT_THROW(engine.generate_ahead(Tokens{1}), Error);
  Lookahead lookahead(engine, Tokens{1, 2, 3, 1, 2, 3}, penalties);
  EXPECT_EQ(lookahead.next().size(), 1U);
}

}  // namespace
}  // namespace mt::serve
