// The engine over four virtual devices, against the engine on one.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "support/small_engine.h"

namespace mt::serve {
namespace {

using testing::random_tokens;
using testing::Small;
using testing::Tokens;

struct Decoded {
  std::vector<int32_t> tokens;
  std::vector<float> logits;  // of every step
};

// A long prompt in pieces beside a short one, then ten steps of both.
Decoded run(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"base_num_decoder_layers=6", "base_num_kv_heads=4"});
  Small small({.slots = 4, .max_length = 40, .chunk = 8}, flags);
  Engine& engine = *small.engine;
  engine.insert(engine.prefill(random_tokens(21, 1), {}), 0);
  engine.insert(engine.prefill(random_tokens(3, 2), {.temperature = 0.7F, .seed = 4}), 2);
  Decoded out;
  for (int i = 0; i < 10; ++i) {
    const std::vector<Token> step = engine.generate();
    const auto logits = engine.logits().data<float>();
    for (const size_t slot : {size_t{0}, size_t{2}}) {
      out.tokens.push_back(step[slot].id);
      const auto row = logits.subspan(slot * testing::kVocab, testing::kVocab);
      out.logits.insert(out.logits.end(), row.begin(), row.end());
    }
  }
  return out;
}

TEST(EngineMesh, FourDevicesGiveTheTokensOfOne) {
  const Decoded one = run({});
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"ici_tensor_parallelism=4"},
        {"ici_data_parallelism=4"},
        {"ici_fsdp_parallelism=2", "ici_tensor_parallelism=2"}}) {
    const Decoded found = run(flags);
    EXPECT_EQ(found.tokens, one.tokens) << flags[0];
    double worst = 0;
    for (size_t i = 0; i < one.logits.size(); ++i) {
      worst = std::max(worst, static_cast<double>(std::abs(found.logits[i] - one.logits[i])));
    }
    EXPECT_LT(worst, 1e-4) << flags[0];
  }
}

// Three heads over four devices.
TEST(EngineMesh, RefusesHeadsThatTheMeshDoesNotDivide) {
  try {
    run({"ici_tensor_parallelism=4", "base_num_query_heads=6", "base_num_kv_heads=3"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("q_heads has size 6"), std::string::npos) << e.what();
    EXPECT_EQ(e.kind(), ErrorKind::kConfig) << e.what();
  }
}

}  // namespace
}  // namespace mt::serve
