// Float32 into the blocks of GGUF: what BlockFormat::from_float is made of.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mt::checkpoint {

// Each fills `blocks` whole blocks of 32 values. false if a value is not finite, or so large that
// the block's scale, a float16, is not; the blocks are then worth nothing.

// A block's scale is its largest magnitude / 127: every value within half a step of the scale.
bool quantise_q8_0(const float* in, int64_t blocks, std::byte* out);
// Of a few scales near (largest magnitude / -8) and (/ 7) the one whose squared error is least.
bool quantise_q4_0(const float* in, int64_t blocks, std::byte* out);

}  // namespace mt::checkpoint
