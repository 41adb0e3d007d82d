// The real 270M against transformers' log-probabilities (tests/golden/real).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "serve/engine.h"
#include "support/small_engine.h"

namespace mt::serve::testing {

inline constexpr const char* kRealWeights = MT_DEPS "/weights/gemma-3-270m-Q4_K_M.gguf";

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
inline void run_goldens(RealGoldens& golden, const std::vector<std::string>& more) {
  ASSERT_TRUE(exists(kRealWeights)) << kRealWeights << " is missing: run make setup";
  ASSERT_EQ(golden.prompts.size(), 12U);
  std::vector<std::string> words{"model_name=gemma3-270m", "dtype=float32", "jax_cache_dir=",
                                 std::string("load_parameters_path=") + kRealWeights};
  words.insert(words.end(), more.begin(), more.end());
  const auto config = mt::testing::config_of(words);
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

}  // namespace mt::serve::testing
