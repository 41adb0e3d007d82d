#include "layers/dot_product_attention.h"

namespace mt::layers {

using ir::Value;

Value dot_product_attention(Value q_blnh, Value k_blkh, Value v_blkh, const AttentionMask& mask) {
  const int64_t b = q_blnh.dim(0), l = q_blnh.dim(1), n = q_blnh.dim(2), h = q_blnh.dim(3);
  const int64_t k = k_blkh.dim(2);
  ir::Graph& graph = *q_blnh.graph;
  const Value q = ir::reshape(q_blnh, {b, l, k, n / k, h});
  const Value scores = ir::einsum("blkgh,bskh->bkgls", q, k_blkh, DType::kF32);

  const Value row = ir::iota(graph, DType::kS32, {l, l}, 0),
              col = ir::iota(graph, DType::kS32, {l, l}, 1);
  Value seen = ir::compare(col, ir::Direction::kLe, row);
  if (mask.window > 0) {
    const Value reach = ir::full(graph, DType::kS32, {}, static_cast<double>(mask.window));
    seen = ir::logical_and(seen, ir::compare(row - col, ir::Direction::kLt, reach));
  }
  const Value same = ir::compare(ir::expand_dims(mask.segment_ids_bl, 2), ir::Direction::kEq,
                                 ir::expand_dims(mask.segment_ids_bl, 1));
  const Value keep = ir::reshape(ir::logical_and(same, seen), {b, 1, 1, l, l});
  const Value masked = ir::select(keep, scores, ir::full(graph, DType::kF32, {}, kMaskValue));

  const Value p = ir::exp(masked - ir::reduce_max(masked, {-1}, true));
  const Value weights = ir::cast(p / ir::reduce_sum(p, {-1}, true), v_blkh.dtype());
  const Value context = ir::einsum("bkgls,bskh->blkgh", weights, v_blkh);
  return ir::checkpoint_name(ir::reshape(context, {b, l, n, h}), "context");
}

}  // namespace mt::layers
