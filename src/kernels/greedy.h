// The most likely token of each row of logits, on all threads of a pool: what the FFI handler
// calls.
#pragma once

#include <cstdint>

#include "kernels/products.h"

namespace mt::kernels {

// logits [rows, vocabulary], the latter at least 1. token [rows]: the first of the largest, and
// some token where there is a NaN. log_prob [rows]: log softmax at it; NaN if any logit is not
// finite.
void greedy(const Engine& engine, const float* logits, int64_t rows, int64_t vocabulary,
            int32_t* token, float* log_prob);

}  // namespace mt::kernels
