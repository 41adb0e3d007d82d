// Products with matrices that stay in the blocks of a GGUF file, through the CPU kernels
// (kernels/kernels.h; the plugin must know them).
#pragma once

#include "nnx/module.h"

namespace mt::layers {

// x [..., K] times the transpose of a stored matrix of N rows -> [..., N] in x's dtype. Up to
// sixteen rows of x meet the blocks as they are; for more, the matrix is decoded first.
ir::Value multiply_stored(ir::Value x, const nnx::Variable& weight);

// Rows of a stored matrix by s32 indices [...] -> [..., K] in `dtype`.
ir::Value take_stored_rows(const nnx::Variable& weight, ir::Value indices, DType dtype);

}  // namespace mt::layers
