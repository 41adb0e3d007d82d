#include "layers/stored_weight.h"

#include "base/error.h"

namespace mt::layers {
namespace {

using ir::Value;

constexpr int64_t kMostRows = 16;  // of x that the block kernels are made for
constexpr int64_t kScaled = 32;    // values of x that share a scale in the kernels

// u8 [..., row_bytes] -> [..., columns]
Value decode(Value blocks, int64_t block_type, int64_t columns, DType dtype) {
  Shape shape = blocks.shape();
  shape.back() = columns;
  return ir::custom_call(*blocks.graph, {"mt_dequantise", {{"type", block_type}}, {}, false},
                         {blocks}, {{dtype, shape}})[0];
}

// The kernels round x to 8 bits, 32 values to a scale. So x goes in as two rows: what 8 bits hold
// of it, and the rest, which has smaller scales: together about 15 bits. [M, K] -> [2 M, K]
Value in_two_parts(Value x) {
  const int64_t rows = x.dim(0), columns = x.dim(1);
  const Value blocks = ir::reshape(x, {rows, columns / kScaled, kScaled});
  const Value top = ir::reduce_max(ir::abs(blocks), {2}, true);
  const Value tiny = ir::full(*x.graph, DType::kF32, {}, 1e-30);  // keeps a block of zeros finite
  const Value scale = ir::maximum(top, tiny) / 127.0;
  const Value coarse = ir::reshape(ir::floor(blocks / scale + 0.5) * scale, {rows, columns});
  return ir::concatenate({coarse, x - coarse}, 0);
}

Value sum_of_parts(Value y) {
  const int64_t rows = y.dim(0) / 2;
  return ir::slice_axis(y, 0, 0, rows) + ir::slice_axis(y, 0, rows, 2 * rows);
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
  std::vector<Value> operands{in_two_parts(ir::cast(flat, DType::kF32))};
  std::vector<ir::Type> results;
  for (size_t i = 0; i < weights.size(); ++i) {
    MT_CHECK(weights[i]->block_type >= 0);
    call.integers["type_" + std::to_string(i)] = weights[i]->block_type;
    operands.push_back(weights[i]->value);
    results.push_back({DType::kF32, {2 * rows, weights[i]->type.shape[0]}});
  }
  for (const Value product : ir::custom_call(*x.graph, std::move(call), operands, results)) {
    out.push_back(shaped(sum_of_parts(product)));
  }
  return out;
}

Value take_stored_rows(const nnx::Variable& weight, Value indices, DType dtype) {
  MT_CHECK(weight.block_type >= 0);
  const Value rows = ir::take_rows(weight.value, indices);
  return decode(rows, weight.block_type, weight.columns, dtype);
}

}  // namespace mt::layers
