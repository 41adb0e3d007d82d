#include "layers/dropout.h"

namespace mt::layers {

ir::Value dropout(ir::Value x, double rate, nnx::Rngs* rngs) {
  if (rate == 0 || rngs == nullptr) return x;
  Shape mask_shape = x.shape();
  mask_shape[mask_shape.size() - 2] = 1;
  const ir::Value kept = ir::random_bernoulli((*rngs)("dropout"), mask_shape, 1 - rate);
  return ir::select(kept, x * (1 / (1 - rate)), ir::zeros_like(x));
}

}  // namespace mt::layers
