#include "kernels/norm.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/floats.h"

namespace mt::kernels {
namespace {

// float32 as it is, or widened into `space`.
const float* as_f32(const KernelTable& table, const void* in, int64_t first, int64_t count,
                    DType dtype, std::vector<float>& space) {
  const auto* from = static_cast<const std::byte*>(in) + first * byte_size(dtype);
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(from);
  space.resize(static_cast<size_t>(count));
  table.widen[index_of(dtype)](from, count, space.data());
  return space.data();
}

}  // namespace

void rms_norm(const Engine& engine, const Norm& n) {
  constexpr int64_t kValuesOfATask = 8192;
  const KernelTable& table = kernels_for(engine.set);
  std::vector<float> wide_scale;
  const float* scale = as_f32(table, n.scale, 0, n.size, n.scale_dtype, wide_scale);
  const int64_t rows = std::max<int64_t>(1, kValuesOfATask / std::max<int64_t>(1, n.size));
  engine.pool.run((n.rows + rows - 1) / rows, [&](int64_t task, int) {
    std::vector<float> x, cos, sin, out;
    for (int64_t i = task * rows; i < std::min(n.rows, (task + 1) * rows); ++i) {
      const bool narrow_out = n.dtype != DType::kF32;
      if (narrow_out) out.resize(static_cast<size_t>(n.size));
      auto* to = static_cast<std::byte*>(n.out) + i * n.size * byte_size(n.dtype);
      NormRow row{as_f32(table, n.x, i * n.size, n.size, n.dtype, x), scale, n.size, n.epsilon};
      if (n.cos != nullptr) {
        const int64_t half = n.size / 2, at = i / n.heads * half;
        row.cos = as_f32(table, n.cos, at, half, n.dtype, cos);
        row.sin = as_f32(table, n.sin, at, half, n.dtype, sin);
      }
      row.factor = n.factor;
      row.out = narrow_out ? out.data() : reinterpret_cast<float*>(to);
      table.norm(row);
      if (narrow_out) narrow(out.data(), n.size, n.dtype, to);
    }
  });
}

}  // namespace mt::kernels
