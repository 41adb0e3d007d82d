#include "layers/rope.h"

#include <cmath>
#include <vector>

namespace mt::layers {

RopeTable rope_table(ir::Value positions_bl, int64_t head_dim, double theta, double factor,
                     DType dtype) {
  const int64_t half = head_dim / 2;
  std::vector<float> timescale;
  for (int64_t j = 0; j < half; ++j) {
    timescale.push_back(static_cast<float>(
        std::pow(theta, 2.0 * static_cast<double>(j) / static_cast<double>(head_dim)) * factor));
  }
  ir::Graph& graph = *positions_bl.graph;
  const ir::Value scale = ir::constant(graph, Tensor::of<float>(DType::kF32, {half}, timescale));
  const ir::Value angle = ir::expand_dims(ir::cast(positions_bl, DType::kF32), -1) / scale;
  // Without the barrier XLA computes them again in every layer, for every head.
  const auto table =
      ir::barrier({ir::cast(ir::cos(angle), dtype), ir::cast(ir::sin(angle), dtype)});
  return {table[0], table[1]};
}

ir::Value apply_rope(ir::Value x_blnh, const RopeTable& table) {
  const int64_t half = x_blnh.dim(-1) / 2;
  const ir::Value a = ir::slice_axis(x_blnh, -1, 0, half);
  const ir::Value b = ir::slice_axis(x_blnh, -1, half, 2 * half);
  const ir::Value cos = ir::expand_dims(table.cos_blh, 2), sin = ir::expand_dims(table.sin_blh, 2);
  return ir::concatenate({a * cos - b * sin, b * cos + a * sin}, -1);
}

}  // namespace mt::layers
