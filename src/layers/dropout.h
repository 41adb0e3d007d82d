// Dropout with one mask along the second to last axis (MaxText broadcasts over length).
#pragma once

#include "nnx/rngs.h"

namespace mt::layers {

// x unchanged if rate is 0 or rngs is null (prefill, decoding, evaluation). Kept values are divided
// by 1 - rate.
ir::Value dropout(ir::Value x, double rate, nnx::Rngs* rngs);

}  // namespace mt::layers
