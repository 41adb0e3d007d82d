#include "serve/sampling.h"

#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace mt::serve {
namespace {

void check_range(const char* name, float value, float low, float high) {
  if (value >= low && value <= high) return;  // NaN is outside
  throw fail(ErrorKind::kConfig, "{} is {}: expected {} to {}", name, value, low, high);
}

}  // namespace

void check(const Sampling& s, int64_t vocab_size) {
  if (!std::isfinite(s.temperature) || s.temperature < 0) {
    throw fail(ErrorKind::kConfig, "temperature is {}: expected 0 or more", s.temperature);
  }
  check_range("nucleus p", s.nucleus_p, 0, 1);
  check_range("min p", s.min_p, 0, 1);
  check_range("repetition penalty", s.repetition_penalty, 0.01F, 100);
  check_range("presence penalty", s.presence_penalty, -100, 100);
  check_range("frequency penalty", s.frequency_penalty, -100, 100);
  if (s.top_k < 0) throw fail(ErrorKind::kConfig, "top k is {}: expected 0 or more", s.top_k);
  if (s.top_log_probs < 0 || s.top_log_probs > kMostTopLogProbs) {
    throw fail(ErrorKind::kConfig, "{} alternatives a token: expected 0 to {}", s.top_log_probs,
               kMostTopLogProbs);
  }
  for (const auto& [id, bias] : s.logit_bias) {
    if (id < 0 || id >= vocab_size) {
      throw fail(ErrorKind::kConfig, "a logit bias for token {}: the vocabulary has {}", id,
                 vocab_size);
    }
    if (!std::isfinite(bias)) {
      throw fail(ErrorKind::kConfig, "the logit bias of token {} is {}: expected a number", id,
                 bias);
    }
  }
}

bool adjusts_logits(const Sampling& s) {
  return s.repetition_penalty != 1 || s.presence_penalty != 0 || s.frequency_penalty != 0 ||
         !s.logit_bias.empty();
}

Choice choice_for(const Sampling& s) {
  if (adjusts_logits(s) || s.top_log_probs > 0) return Choice::kFull;
  return s.temperature > 0 ? Choice::kSample : Choice::kGreedy;
}

Tensor settings_of(std::span<const Sampling> rows) {
  std::vector<float> table;
  for (const Sampling& s : rows) {
    table.insert(table.end(), {s.temperature, static_cast<float>(s.top_k), s.nucleus_p, s.min_p,
                               s.repetition_penalty, s.presence_penalty, s.frequency_penalty,
                               adjusts_logits(s) ? 1.0F : 0.0F});
  }
  return Tensor::of<float>(DType::kF32, {static_cast<int64_t>(rows.size()), kSettings}, table);
}

Tensor keys_of(std::span<const Sampling> rows, std::span<const int64_t> positions) {
  std::vector<uint32_t> keys;
  for (size_t i = 0; i < rows.size(); ++i) {
    const RandomKey key = fold_in(random_key(rows[i].seed), static_cast<uint32_t>(positions[i]));
    keys.insert(keys.end(), key.begin(), key.end());
  }
  return Tensor::of<uint32_t>(DType::kU32, {static_cast<int64_t>(rows.size()), 2}, keys);
}

Tensor seen_in(std::span<const int32_t> prompt, int64_t vocab_size) {
  std::vector<int32_t> seen(static_cast<size_t>(vocab_size), 0);
  for (const int32_t id : prompt) seen[static_cast<size_t>(id)] = 1;
  return Tensor::of<int32_t>(DType::kS32, {1, vocab_size}, seen);
}

Tensor bias_of(const Sampling& sampling, int64_t vocab_size) {
  std::vector<float> bias(static_cast<size_t>(vocab_size), 0);
  for (const auto& [id, x] : sampling.logit_bias) bias[static_cast<size_t>(id)] = x;
  return Tensor::of<float>(DType::kF32, {1, vocab_size}, bias);
}

}  // namespace mt::serve
