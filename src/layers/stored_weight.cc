#include "layers/stored_weight.h"

#include "base/error.h"

namespace mt::layers {
namespace {

using ir::Value;

constexpr int64_t kMostRows = 16;  // of x that the block kernels are made for

// u8 [..., row_bytes] -> [..., columns]
Value decode(Value blocks, int64_t block_type, int64_t columns, DType dtype) {
  Shape shape = blocks.shape();
  shape.back() = columns;
  return ir::custom_call(*blocks.graph, {"mt_dequantise", {{"type", block_type}}, {}, false},
                         {blocks}, {{dtype, shape}})[0];
}

}  // namespace

std::vector<Value> multiply_stored(Value x, const std::vector<const nnx::Variable*>& weights) {
  const int64_t columns = x.shape().back(), rows = element_count(x.shape()) / columns;
  const Value flat = ir::reshape(x, {rows, columns});
  const auto shaped = [&](Value product) {
    Shape shape = x.shape();
    shape.back() = product.dim(1);
    return ir::cast(ir::reshape(product, shape), x.dtype());
  };
  std::vector<Value> out;
  if (rows > kMostRows) {
    for (const nnx::Variable* w : weights) {
      const Value matrix = decode(w->value, w->block_type, columns, x.dtype());
      out.push_back(shaped(ir::einsum("mk,nk->mn", flat, matrix)));
    }
    return out;
  }
  ir::CustomCallInfo call{"mt_quantised_matmul", {}, {}, false};
  std::vector<Value> operands{ir::cast(flat, DType::kF32)};
  std::vector<ir::Type> results;
  for (size_t i = 0; i < weights.size(); ++i) {
    MT_CHECK(weights[i]->block_type >= 0);
    call.integers["type_" + std::to_string(i)] = weights[i]->block_type;
    operands.push_back(weights[i]->value);
    results.push_back({DType::kF32, {rows, weights[i]->type.shape[0]}});
  }
  for (const Value product : ir::custom_call(*x.graph, std::move(call), operands, results)) {
    out.push_back(shaped(product));
  }
  return out;
}

Value take_stored_rows(const nnx::Variable& weight, Value indices, DType dtype) {
  MT_CHECK(weight.block_type >= 0);
  const Value rows = ir::take_rows(weight.value, indices);
  return decode(rows, weight.block_type, weight.columns, dtype);
}

}  // namespace mt::layers
