// Choosing a token of each row of logits by the row's own settings, on all threads of a pool: what
// the FFI handler calls. serve/sampler.h says what is chosen, in StableHLO's words.
#pragma once

#include <cstdint>

#include "kernels/products.h"

namespace mt::kernels {

// Columns of a row of settings that are read here; there may be others.
enum SampleSetting : uint8_t {
  kSampleTemperature = 0,  // 0: the largest
  kSampleTopK = 1,         // 0: off. Equals of the last one are kept too
  kSampleNucleusP = 2,     // 0 or from 1: off
  kSampleMinP = 3,         // 0: off
  kSampleAdjusts = 7       // not 0: `adjusted` differs from `logits`
};

struct SampleBatch {
  int64_t rows = 0, vocabulary = 0;
  const float* logits = nullptr;    // [rows, vocabulary]
  const float* adjusted = nullptr;  // the same; what is chosen from
  const float* settings = nullptr;  // [rows, columns]
  int64_t columns = 0;
  const uint32_t* keys = nullptr;  // [rows, 2], of the random numbers (base/random.h)
};

// token [rows]: the largest of adjusted / temperature + Gumbel noise among those that the limits
// leave, which is a draw from their softmax; the noise of token i is made of
// random_bits_at(key, i). log_prob [rows]: log softmax(logits) at it, NaN if any logit is not
// finite (then `token` is some token).
void sample(const Engine& engine, const SampleBatch& batch, int32_t* token, float* log_prob);

}  // namespace mt::kernels
