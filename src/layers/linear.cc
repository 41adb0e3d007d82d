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
  if (kernel.stored) return project_together(x, {this})[0];
  return ir::einsum(formula_, x, ir::cast(kernel.value, x.dtype()));
}

// The kernel's letters that the result lacks are inputs: the last ones of x, the first of the
// kernel.
int64_t DenseGeneral::inputs() const {
  const size_t comma = formula_.find(','), arrow = formula_.find("->");
  const std::string_view letters = std::string_view(formula_).substr(comma + 1, arrow - comma - 1);
  const std::string_view result = std::string_view(formula_).substr(arrow + 2);
  return std::count_if(letters.begin(), letters.end(),
                       [&](char c) { return result.find(c) == std::string_view::npos; });
}

std::vector<ir::Value> project_together(ir::Value x,
                                        const std::vector<const DenseGeneral*>& projections) {
  const bool stored = std::all_of(projections.begin(), projections.end(),
                                  [](const auto* p) { return p->kernel.stored.has_value(); });
  std::vector<ir::Value> out;
  if (!stored) {
    for (const DenseGeneral* p : projections) out.push_back((*p)(x));
    return out;
  }
  std::vector<const nnx::Variable*> weights;
  for (const DenseGeneral* p : projections) weights.push_back(&p->kernel);
  const int64_t inputs = projections[0]->inputs();
  const Shape leading(x.shape().begin(), x.shape().end() - inputs);
  Shape flat = leading;
  flat.push_back(-1);
  const std::vector<ir::Value> products = multiply_stored(ir::reshape(x, flat), weights);
  for (size_t i = 0; i < products.size(); ++i) {
    const Shape& kernel = projections[i]->kernel_shape_;
    Shape shape = leading;
    shape.insert(shape.end(), kernel.begin() + inputs, kernel.end());
    out.push_back(ir::reshape(products[i], shape));
  }
  return out;
}

}  // namespace mt::layers
