// Conversions that several kernels share.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace mt::kernels {

// Of a Float type (kernel_table.h): its place in the tables. dtype is kF32, kF16, kBF16 or kS8.
size_t index_of(DType dtype);

// float32 to kF32, kF16 or kBF16, to nearest even.
void narrow(const float* in, int64_t count, DType dtype, void* out);

}  // namespace mt::kernels
