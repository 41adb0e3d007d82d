// Copies stored tensors into new ones of another dtype or layout, a strip at a time.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "base/tensor.h"
#include "checkpoint/reader.h"

namespace mt::models::gemma3 {

// The first element_count(shape) elements, each as scale * x + shift in float32, rounded to `want`.
struct Affine {
  float scale = 1;
  float shift = 0;
};
Tensor copy_elements(const checkpoint::TensorReader& reader, std::string_view name,
                     const Shape& shape, DType want, Affine map = {});

// The [columns, rows] matrix of a stored [rows, columns] one, under the name of `shape`.
Tensor copy_transposed(const checkpoint::TensorReader& reader, std::string_view name, int64_t rows,
                       int64_t columns, const Shape& shape, DType want);

// Entry `index` of axis 1 of a stored [shape[0], count, shape[1]...].
Tensor copy_stacked(const checkpoint::TensorReader& reader, std::string_view name,
                    const Shape& shape, int64_t count, int64_t index, DType want);

// The rows of a stored [rows, columns] matrix, and those of the transpose of an f32 [columns, rows]
// one in memory: pieces of them, from several threads at once.
using Rows = std::function<void(int64_t first, std::span<const float> rows)>;
void each_row(const checkpoint::TensorReader& reader, std::string_view name, int64_t rows,
              int64_t columns, const Rows& take);
void each_row_of_transpose(const Tensor& matrix, int64_t rows, int64_t columns, const Rows& take);

}  // namespace mt::models::gemma3
