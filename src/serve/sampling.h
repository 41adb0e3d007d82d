// One request's settings for choosing tokens, and how those of all rows travel to the device.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/tensor.h"

namespace mt::serve {

// In the order in which they act, which is llama.cpp's (bias, penalties, top-k, top-p, min-p,
// temperature) and, where MaxText has them, that of its composite strategy.
struct Sampling {
  float temperature = 0;  // 0: the most likely token (greedy)
  int32_t top_k = 0;      // only the k most likely; 0: all. Equals of the last are kept too
  float nucleus_p = 0;    // only the most likely that together reach p; 0 or 1: all
  float min_p = 0;        // only those at least p times as likely as the most likely one; 0: all
  // Hugging Face's: the logit of a token of the prompt or the output is divided by it if above 0,
  // multiplied otherwise. 1: off
  float repetition_penalty = 1;
  // OpenAI's, of the output only: logit - times * frequency - (times > 0) * presence.
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::map<int32_t, float> logit_bias;  // OpenAI's: token -> what is added to its logit
  int32_t top_log_probs = 0;  // so many most likely tokens are told with each one that is chosen
  uint64_t seed = 0;
};

constexpr int32_t kMostTopLogProbs = 20;  // OpenAI's

// Throws kConfig for a setting out of its range.
void check(const Sampling& sampling, int64_t vocab_size);

// The cheapest program that does what a row asks for.
enum class Choice : uint8_t {
  kGreedy,  // the most likely token
  kSample,  // temperature, top-k, nucleus, min-p
  kFull     // what needs numbers for every token of the vocabulary, and alternatives
};
Choice choice_for(const Sampling& sampling);
// Whether the row's logits are changed by what it has seen, or by its bias.
bool adjusts_logits(const Sampling& sampling);

// Columns of the settings' table, f32 [B, kSettings].
enum Setting : uint8_t {
  kTemperature,
  kTopK,
  kNucleusP,
  kMinP,
  kRepetition,
  kPresence,
  kFrequency,
  kAdjusts,  // 1: the row has penalties or a bias
  kSettings
};

Tensor settings_of(std::span<const Sampling> rows);
// u32 [B, 2], of a row's seed and the position of the token to choose.
Tensor keys_of(std::span<const Sampling> rows, std::span<const int64_t> positions);

// What a row has seen, s32 [1, V]: 2 a time in the output, and 1 if in the prompt.
Tensor seen_in(std::span<const int32_t> prompt, int64_t vocab_size);
Tensor bias_of(const Sampling& sampling, int64_t vocab_size);  // f32 [1, V]

}  // namespace mt::serve
