#include "layers/linear.h"

namespace mt::layers {

DenseGeneral::DenseGeneral(std::string formula, DType weight_dtype, Shape kernel_shape,
                           std::vector<std::string> axes, nnx::Initializer init)
    : kernel(nnx::param(weight_dtype, std::move(kernel_shape), std::move(axes), std::move(init))),
      formula_(std::move(formula)) {}

ir::Value DenseGeneral::operator()(ir::Value x) const {
  return ir::einsum(formula_, x, ir::cast(kernel.value, x.dtype()));
}

}  // namespace mt::layers
