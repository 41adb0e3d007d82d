// Products with matrices that stay as their file has them (nnx::StoredForm), through the CPU
// kernels (kernels/kernels.h; the plugin must know them).
#pragma once

#include <vector>

#include "nnx/module.h"

namespace mt::layers {

// x [..., K] times the transpose of each stored matrix of N rows -> [..., N] in x's dtype. Rows
// of x meet the matrices as they are, all in one call; where there are more than most_rows, each
// matrix is decoded first.
std::vector<ir::Value> multiply_stored(ir::Value x,
                                       const std::vector<const nnx::Variable*>& weights);

// Rows of a stored matrix by s32 indices [...] -> [..., K] in `dtype`.
ir::Value take_stored_rows(const nnx::Variable& weight, ir::Value indices, DType dtype);

}  // namespace mt::layers
