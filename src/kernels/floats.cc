#include "kernels/floats.h"

#include <cstring>

#include "base/error.h"
#include "kernels/kernel_table.h"

namespace mt::kernels {

size_t index_of(DType dtype) {
  MT_CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
           dtype == DType::kS8);
  const Float type = dtype == DType::kF32    ? Float::kF32
                     : dtype == DType::kF16  ? Float::kF16
                     : dtype == DType::kBF16 ? Float::kBF16
                                             : Float::kS8;
  return static_cast<size_t>(type);
}

void narrow(const float* in, int64_t count, DType dtype, void* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, in, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  auto* bits = static_cast<uint16_t*>(out);
  for (int64_t i = 0; i < count; ++i) {
    bits[i] =
        dtype == DType::kBF16 ? BFloat16::from_float(in[i]).bits : Float16::from_float(in[i]).bits;
  }
}

}  // namespace mt::kernels
