#include "layers/linear.h"

#include <algorithm>

#include "layers/stored_weight.h"

namespace mt::layers {

DenseGeneral::DenseGeneral(std::string formula, DType weight_dtype, Shape kernel_shape,
                           std::vector<std::string> axes, nnx::Initializer init)
    : kernel(nnx::param(weight_dtype, kernel_shape, std::move(axes), std::move(init))),
      formula_(std::move(formula)),
      kernel_shape_(std::move(kernel_shape)) {}

ir::Value DenseGeneral::operator()(ir::Value x) const {
  if (kernel.block_type >= 0) return with_blocks(x);
  return ir::einsum(formula_, x, ir::cast(kernel.value, x.dtype()));
}

// The kernel's letters that the result lacks are inputs: the last ones of x, the first of the
// kernel.
ir::Value DenseGeneral::with_blocks(ir::Value x) const {
  const size_t comma = formula_.find(','), arrow = formula_.find("->");
  const std::string_view letters = std::string_view(formula_).substr(comma + 1, arrow - comma - 1);
  const std::string_view result = std::string_view(formula_).substr(arrow + 2);
  const auto inputs = std::count_if(letters.begin(), letters.end(), [&](char c) {
    return result.find(c) == std::string_view::npos;
  });
  Shape flat(x.shape().begin(), x.shape().end() - inputs), out = flat;
  flat.push_back(-1);
  out.insert(out.end(), kernel_shape_.begin() + inputs, kernel_shape_.end());
  return ir::reshape(multiply_stored(ir::reshape(x, flat), kernel), out);
}

}  // namespace mt::layers
