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

Value multiply_stored(Value x, const nnx::Variable& weight) {
  MT_CHECK(weight.block_type >= 0);
  Shape shape = x.shape();
  const int64_t columns = shape.back(), rows = element_count(shape) / columns;
  const int64_t outputs = weight.type.shape[0];
  shape.back() = outputs;
  const Value flat = ir::reshape(x, {rows, columns});
  if (rows <= kMostRows) {
    const Value product = ir::custom_call(
        *x.graph, {"mt_quantised_matmul", {{"type_0", weight.block_type}}, {}, false},
        {ir::cast(flat, DType::kF32), weight.value}, {{DType::kF32, {rows, outputs}}})[0];
    return ir::cast(ir::reshape(product, shape), x.dtype());
  }
  const Value matrix = decode(weight.value, weight.block_type, columns, x.dtype());
  return ir::reshape(ir::einsum("mk,nk->mn", flat, matrix), shape);
}

Value take_stored_rows(const nnx::Variable& weight, Value indices, DType dtype) {
  MT_CHECK(weight.block_type >= 0);
  const Value rows = ir::take_rows(weight.value, indices);
  return decode(rows, weight.block_type, weight.columns, dtype);
}

}  // namespace mt::layers
