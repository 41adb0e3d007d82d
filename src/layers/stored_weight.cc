#include "layers/stored_weight.h"

#include <algorithm>

#include "base/error.h"

namespace mt::layers {
namespace {

using ir::Value;

bool in_blocks(const nnx::Variable& weight) { return weight.type.dtype == DType::kU8; }

// Rows of a stored matrix, [..., row] -> [..., columns].
Value decode(const nnx::Variable& weight, Value rows, DType dtype) {
  MT_CHECK(!weight.stored->packed);  // only where every product is the kernel's
  if (!in_blocks(weight)) return ir::cast(rows, dtype);
  Shape shape = rows.shape();
  shape.back() = weight.stored->columns;
  const ir::CustomCallInfo call{"mt_dequantise", {{"type", weight.stored->block_type}}};
  return ir::custom_call(*rows.graph, call, {rows}, {{dtype, shape}})[0];
}

// One call of a kernel for all these weights: x f32 [M, K] -> f32 [M, N] each.
std::vector<Value> call_kernel(Value x, const std::vector<const nnx::Variable*>& weights) {
  const bool blocks = in_blocks(*weights[0]);
  ir::CustomCallInfo call{.target = blocks ? "mt_quantised_matmul" : "mt_matvec"};
  std::vector<Value> operands{x};
  std::vector<ir::Type> results;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (blocks) call.integers["type_" + std::to_string(i)] = weights[i]->stored->block_type;
    if (weights[i]->stored->packed) call.integers["packed_" + std::to_string(i)] = 1;
    operands.push_back(weights[i]->value);
    results.push_back({DType::kF32, {x.dim(0), weights[i]->type.shape[0]}});
  }
  return ir::custom_call(*x.graph, std::move(call), operands, results);
}

}  // namespace

std::vector<Value> multiply_stored(Value x, const std::vector<const nnx::Variable*>& weights) {
  const int64_t columns = x.shape().back(), rows = element_count(x.shape()) / columns;
  const Value flat = ir::reshape(x, {rows, columns});
  const auto alike = [&](const nnx::Variable* w) {
    return in_blocks(*w) == in_blocks(*weights[0]);
  };
  std::vector<Value> products;
  const auto few = [&](const nnx::Variable* w) { return rows <= w->stored->most_rows; };
  if (!std::all_of(weights.begin(), weights.end(), few)) {
    for (const nnx::Variable* w : weights) {
      products.push_back(ir::einsum("mk,nk->mn", flat, decode(*w, w->value, x.dtype())));
    }
  } else if (std::all_of(weights.begin(), weights.end(), alike)) {
    products = call_kernel(ir::cast(flat, DType::kF32), weights);
  } else {
    for (const nnx::Variable* w : weights) {
      products.push_back(call_kernel(ir::cast(flat, DType::kF32), {w})[0]);
    }
  }
  for (Value& product : products) {
    Shape shape = x.shape();
    shape.back() = product.dim(1);
    product = ir::cast(ir::reshape(product, shape), x.dtype());
  }
  return products;
}

Value take_stored_rows(const nnx::Variable& weight, Value indices, DType dtype) {
  return decode(weight, ir::take_rows(weight.value, indices), dtype);
}

}  // namespace mt::layers
