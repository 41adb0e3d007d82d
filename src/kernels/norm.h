// RMSNorm of rows, with the rotary embedding behind it where there is one, as a plain function on
// all threads of a pool: what the FFI handler calls.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/products.h"

namespace mt::kernels {

struct Norm {
  int64_t rows = 0, size = 0;
  DType dtype = DType::kF32;        // of x and out, cos and sin: kF32, kF16 or kBF16
  DType scale_dtype = DType::kF32;  // likewise
  const void* x = nullptr;          // [rows, size]
  const void* scale = nullptr;      // [size]
  float epsilon = 0;
  // The rotary embedding of halves (layers/rope.h): row i turns by row i / heads of these. Null:
  // none.
  const void* cos = nullptr;  // [rows / heads, size / 2]
  const void* sin = nullptr;
  int64_t heads = 1;
  float factor = 1;     // of what comes out
  void* out = nullptr;  // [rows, size]
};

// x / sqrt(mean(x^2) + epsilon) * scale, turned, times factor: in float32, rounded once.
void rms_norm(const Engine& engine, const Norm& norm);

}  // namespace mt::kernels
