// Blockwise attention in plain StableHLO. Queries are cut into blocks; a block meets only the key
// blocks that causality and the window let it see. Few blocks are unrolled, so that each has static
// slices; many become a loop over query blocks with an inner loop over their key blocks.
//
// Backward, for one block (Dao et al. 2022, section 3): p = exp(s - lse), dv += p^T do,
// ds = p * (do v^T - delta), dq = ds k, dk += ds^T q, with delta = rowsum(do * o).
#include <algorithm>

#include "base/error.h"
#include "layers/dot_product_attention.h"

namespace mt::layers {
namespace {

using ir::Direction;
using ir::Value;
using Values = std::vector<Value>;

constexpr int64_t kMaxUnrolled = 8;  // query blocks

// Sizes of one call. Arrays inside: q, o [B, K, G, L, H]; k, v [B, K, L, H]; lse [B, K, G, L];
// L is padded to whole blocks.
struct Plan {
  int64_t block, blocks, window;
  // First key block that query block i sees.
  int64_t first_key_block(int64_t i) const {
    return window == 0 ? 0 : std::max<int64_t>(0, (i * block - window + 1) / block);
  }
};

Value rows(Value x, int64_t axis, int64_t from, int64_t to) {
  return ir::slice_axis(x, axis, from, to);
}

Value integer(ir::Graph& g, int64_t v) {
  return ir::full(g, DType::kS32, {}, static_cast<double>(v));
}

// Masked float32 scores of queries [B, K, G, l, H] against keys [B, K, s, H]; row0 and col0 are the
// positions of their first rows (s32 scalars).
Value scores(Value q, Value k, Value q_segment, Value k_segment, Value row0, Value col0,
             int64_t window) {
  const int64_t b = q.dim(0), kv = q.dim(1), g = q.dim(2), l = q.dim(3), s = k.dim(2);
  const Value flat = ir::reshape(q, {b, kv, g * l, q.dim(4)});
  const Value raw = ir::reshape(ir::dot_general(flat, k, {{0, 1}, {0, 1}, {3}, {3}}, DType::kF32),
                                {b, kv, g, l, s});
  ir::Graph& graph = *raw.graph;
  const Value row = ir::iota(graph, DType::kS32, {l, s}, 0) + row0;
  const Value col = ir::iota(graph, DType::kS32, {l, s}, 1) + col0;
  Value seen = ir::compare(col, Direction::kLe, row);
  if (window > 0) {
    seen = ir::logical_and(seen, ir::compare(row - col, Direction::kLt, integer(graph, window)));
  }
  const Value same =
      ir::compare(ir::expand_dims(q_segment, 2), Direction::kEq, ir::expand_dims(k_segment, 1));
  const Value keep = ir::reshape(ir::logical_and(same, seen), {b, 1, 1, l, s});
  return ir::select(keep, raw, ir::full(graph, DType::kF32, {}, kMaskValue));
}

// p [B, K, G, l, s] times v [B, K, s, H] -> float32 [B, K, G, l, H].
Value times_values(Value p, Value v) {
  const int64_t b = p.dim(0), kv = p.dim(1), g = p.dim(2), l = p.dim(3), s = p.dim(4);
  const Value flat = ir::reshape(ir::cast(p, v.dtype()), {b, kv, g * l, s});
  return ir::reshape(ir::dot_general(flat, v, {{0, 1}, {0, 1}, {3}, {2}}, DType::kF32),
                     {b, kv, g, l, v.dim(3)});
}

// p [B, K, G, l, s]^T times x [B, K, G, l, H] -> float32 [B, K, s, H].
Value transposed_times(Value p, Value x) {
  const int64_t b = p.dim(0), kv = p.dim(1), g = p.dim(2), l = p.dim(3), s = p.dim(4);
  const Value flat = ir::reshape(ir::cast(p, x.dtype()), {b, kv, g * l, s});
  return ir::dot_general(flat, ir::reshape(x, {b, kv, g * l, x.dim(4)}), {{0, 1}, {0, 1}, {2}, {2}},
                         DType::kF32);
}

struct Inputs {
  Value q, k, v, segment;  // padded and transposed
};

// {context in v's dtype, lse} of one unrolled query block.
Values forward_block(const Inputs& in, const Plan& plan, int64_t i) {
  const int64_t from = i * plan.block, to = from + plan.block;
  const int64_t lo = plan.first_key_block(i) * plan.block;
  ir::Graph& g = *in.q.graph;
  const Value s =
      scores(rows(in.q, 3, from, to), rows(in.k, 2, lo, to), rows(in.segment, 1, from, to),
             rows(in.segment, 1, lo, to), integer(g, from), integer(g, lo), plan.window);
  const Value top = ir::reduce_max(s, {-1}, true);
  const Value p = ir::exp(s - top);
  const Value sum = ir::reduce_sum(p, {-1}, true);
  const Value o = times_values(p, rows(in.v, 2, lo, to)) / sum;
  return {ir::cast(o, in.v.dtype()), ir::squeeze(top + ir::log(sum), -1)};
}

Values forward_unrolled(const Inputs& in, const Plan& plan) {
  Values contexts, lses;
  for (int64_t i = 0; i < plan.blocks; ++i) {
    const Values r = forward_block(in, plan, i);
    contexts.push_back(r[0]);
    lses.push_back(r[1]);
  }
  return {ir::concatenate(contexts, 3), ir::concatenate(lses, 3)};
}

struct BlockGradient {
  Value dq, dk, dv;  // float32
};

BlockGradient block_gradient(Value s, Value q, Value k, Value v, Value lse, Value d_out,
                             Value delta) {
  const int64_t b = s.dim(0), kv = s.dim(1), g = s.dim(2), l = s.dim(3), n = s.dim(4);
  const Value p = ir::exp(s - ir::expand_dims(lse, -1));
  const Value flat = ir::reshape(d_out, {b, kv, g * l, d_out.dim(4)});
  const Value dp = ir::reshape(ir::dot_general(flat, v, {{0, 1}, {0, 1}, {3}, {3}}, DType::kF32),
                               {b, kv, g, l, n});
  const Value ds = p * (dp - ir::expand_dims(delta, -1));
  return {times_values(ds, k), transposed_times(ds, q), transposed_times(p, d_out)};
}

Value row_delta(Value d_out, Value out) {
  return ir::reduce_sum(ir::cast(d_out, DType::kF32) * ir::cast(out, DType::kF32), {-1});
}

// {dq, dk, dv} in float32.
Values backward_unrolled(const Inputs& in, Value out, Value lse, Value d_out, const Plan& plan) {
  ir::Graph& g = ir::graph_of({d_out, in.q});
  Values dq;
  std::vector<Value> dk(static_cast<size_t>(plan.blocks)), dv(static_cast<size_t>(plan.blocks));
  for (int64_t i = 0; i < plan.blocks; ++i) {
    const int64_t from = i * plan.block, to = from + plan.block;
    const int64_t first = plan.first_key_block(i), lo = first * plan.block;
    const Value q = rows(in.q, 3, from, to), k = rows(in.k, 2, lo, to), v = rows(in.v, 2, lo, to);
    const Value s = scores(q, k, rows(in.segment, 1, from, to), rows(in.segment, 1, lo, to),
                           integer(g, from), integer(g, lo), plan.window);
    const Value d = rows(d_out, 3, from, to);
    const BlockGradient r =
        block_gradient(s, q, k, v, rows(lse, 3, from, to), d, row_delta(d, rows(out, 3, from, to)));
    dq.push_back(r.dq);
    for (int64_t j = first; j <= i; ++j) {
      const int64_t at = (j - first) * plan.block;
      const auto slot = static_cast<size_t>(j);
      const Value more_k = rows(r.dk, 2, at, at + plan.block);
      const Value more_v = rows(r.dv, 2, at, at + plan.block);
      dk[slot] = dk[slot] ? dk[slot] + more_k : more_k;
      dv[slot] = dv[slot] ? dv[slot] + more_v : more_v;
    }
  }
  return {ir::concatenate(dq, 3), ir::concatenate(dk, 2), ir::concatenate(dv, 2)};
}

// --- loops, for long sequences

Value take_block(Value x, int64_t axis, Value index, int64_t block) {
  Shape sizes = x.shape();
  sizes[static_cast<size_t>(axis)] = block;
  Values starts(static_cast<size_t>(x.rank()), integer(ir::graph_of({x, index}), 0));
  starts[static_cast<size_t>(axis)] = index * static_cast<double>(block);
  return ir::dynamic_slice(x, starts, sizes);
}

Value put_block(Value x, Value update, int64_t axis, Value index, int64_t block) {
  Values starts(static_cast<size_t>(x.rank()), integer(ir::graph_of({x, index}), 0));
  starts[static_cast<size_t>(axis)] = index * static_cast<double>(block);
  return ir::dynamic_update_slice(x, update, starts);
}

Value first_key_block(Value i, const Plan& plan) {
  ir::Graph& g = *i.graph;
  if (plan.window == 0) return i * 0.0;
  // floor((i * block - window + 1) / block), at least 0: the numerator is made positive first.
  const double shift = static_cast<double>(plan.window);
  const Value numerator =
      ir::maximum(i * static_cast<double>(plan.block) - (shift - 1), integer(g, 0));
  return numerator / static_cast<double>(plan.block);
}

// Runs body over key blocks j in [first, i]; state[0] is j.
Values over_key_blocks(Value i, const Plan& plan, Values state,
                       const std::function<Values(Value j, const Values&)>& body) {
  state.insert(state.begin(), first_key_block(i, plan));
  Values out = ir::while_loop(
      state, [&](const Values& s) -> Values { return {ir::compare(s[0], Direction::kLe, i)}; },
      [&](const Values& s) -> Values {
        Values next = body(s[0], Values(s.begin() + 1, s.end()));
        next.insert(next.begin(), s[0] + 1.0);
        return next;
      });
  out.erase(out.begin());
  return out;
}

// Online softmax over the key blocks of query block i: {context, lse}.
Values forward_loop_block(const Inputs& in, const Plan& plan, Value i) {
  const Value q = take_block(in.q, 3, i, plan.block);
  const Value q_segment = take_block(in.segment, 1, i, plan.block);
  ir::Graph& g = *q.graph;
  const Shape column{q.dim(0), q.dim(1), q.dim(2), plan.block, 1};
  const Values end = over_key_blocks(
      i, plan,
      {ir::full(g, DType::kF32, q.shape(), 0), ir::full(g, DType::kF32, column, kMaskValue),
       ir::full(g, DType::kF32, column, 0)},
      [&](Value j, const Values& state) -> Values {
        const Value s =
            scores(q, take_block(in.k, 2, j, plan.block), q_segment,
                   take_block(in.segment, 1, j, plan.block), i * static_cast<double>(plan.block),
                   j * static_cast<double>(plan.block), plan.window);
        const Value top = ir::maximum(state[1], ir::reduce_max(s, {-1}, true));
        const Value p = ir::exp(s - top), fade = ir::exp(state[1] - top);
        const Value o = state[0] * fade + times_values(p, take_block(in.v, 2, j, plan.block));
        return {o, top, state[2] * fade + ir::reduce_sum(p, {-1}, true)};
      });
  return {ir::cast(end[0] / end[2], in.v.dtype()), ir::squeeze(end[1] + ir::log(end[2]), -1)};
}

Values forward_loop(const Inputs& in, const Plan& plan) {
  ir::Graph& g = *in.q.graph;
  Shape lse_shape(in.q.shape().begin(), in.q.shape().end() - 1);
  const Value indices = ir::iota(g, DType::kS32, {plan.blocks}, 0);
  ir::ScanOptions options;
  options.length = plan.blocks;
  return ir::scan(
      {ir::full(g, in.v.dtype(), in.q.shape(), 0), ir::full(g, DType::kF32, lse_shape, 0)},
      {indices}, options, [&](const Values& s) -> Values {
        const Values r = forward_loop_block(in, plan, s[2]);
        return {put_block(s[0], r[0], 3, s[2], plan.block),
                put_block(s[1], r[1], 3, s[2], plan.block)};
      });
}

Values backward_loop(const Inputs& in, Value out, Value lse, Value d_out, const Plan& plan) {
  ir::Graph& g = ir::graph_of({d_out, in.q});
  const auto zeros = [&](Value like) { return ir::full(g, DType::kF32, like.shape(), 0); };
  ir::ScanOptions options;
  options.length = plan.blocks;
  return ir::scan(
      {zeros(in.q), zeros(in.k), zeros(in.v)}, {ir::iota(g, DType::kS32, {plan.blocks}, 0)},
      options, [&](const Values& s) -> Values {
        const Value i = s[3];
        const Value q = take_block(in.q, 3, i, plan.block), d = take_block(d_out, 3, i, plan.block);
        const Value segment = take_block(in.segment, 1, i, plan.block);
        const Value lse_i = take_block(lse, 3, i, plan.block);
        const Value delta = row_delta(d, take_block(out, 3, i, plan.block));
        const Values end = over_key_blocks(
            i, plan, {ir::full(*q.graph, DType::kF32, q.shape(), 0), s[1], s[2]},
            [&](Value j, const Values& t) -> Values {
              const Value k = take_block(in.k, 2, j, plan.block),
                          v = take_block(in.v, 2, j, plan.block);
              const Value sc = scores(q, k, segment, take_block(in.segment, 1, j, plan.block),
                                      i * static_cast<double>(plan.block),
                                      j * static_cast<double>(plan.block), plan.window);
              const BlockGradient r = block_gradient(sc, q, k, v, lse_i, d, delta);
              const auto more = [&](Value sum, Value piece) {
                return put_block(sum, take_block(sum, 2, j, plan.block) + piece, 2, j, plan.block);
              };
              return {t[0] + r.dq, more(t[1], r.dk), more(t[2], r.dv)};
            });
        return {put_block(s[0], end[0], 3, i, plan.block), end[1], end[2]};
      });
}

Value pad_rows(Value x, int64_t axis, int64_t to, double filler = 0) {
  std::vector<int64_t> low(static_cast<size_t>(x.rank()), 0), high = low;
  high[static_cast<size_t>(axis)] = to - x.dim(axis);
  return ir::pad(x, filler, low, high);
}

}  // namespace

Value flash_attention(Value q_blnh, Value k_blkh, Value v_blkh, const AttentionMask& mask,
                      const FlashOptions& options) {
  const int64_t b = q_blnh.dim(0), l = q_blnh.dim(1), n = q_blnh.dim(2), h = q_blnh.dim(3);
  const int64_t kv = k_blkh.dim(2), g = n / kv;
  MT_CHECK(options.block_q > 0);
  const int64_t block = std::min(options.block_q, l), blocks = (l + block - 1) / block;
  const Plan plan{block, blocks, mask.window};
  const bool unrolled = blocks <= kMaxUnrolled;

  const Value q = pad_rows(ir::transpose(ir::reshape(q_blnh, {b, l, kv, g, h}), {0, 2, 3, 1, 4}), 3,
                           block * blocks);
  const Value k = pad_rows(ir::transpose(k_blkh, {0, 2, 1, 3}), 2, block * blocks);
  const Value v = pad_rows(ir::transpose(v_blkh, {0, 2, 1, 3}), 2, block * blocks);
  const Value segment = pad_rows(mask.segment_ids_bl, 1, block * blocks, -1);

  const Values result = ir::custom_vjp(
      "flash_attention", {q, k, v, segment},
      [&](const Values& in) {
        const Inputs inputs{in[0], in[1], in[2], in[3]};
        Values out = unrolled ? forward_unrolled(inputs, plan) : forward_loop(inputs, plan);
        return out;
      },
      [plan, unrolled](const Values& in, const Values& out, const Values& cotangents) -> Values {
        const Inputs inputs{in[0], in[1], in[2], in[3]};
        const Value d_out = cotangents[0];
        const Values d = unrolled ? backward_unrolled(inputs, out[0], out[1], d_out, plan)
                                  : backward_loop(inputs, out[0], out[1], d_out, plan);
        return {ir::cast(d[0], in[0].dtype()), ir::cast(d[1], in[1].dtype()),
                ir::cast(d[2], in[2].dtype()), Value{}};
      });
  const Value context = ir::checkpoint_name(result[0], "context");
  ir::checkpoint_name(result[1], "context");
  return ir::reshape(ir::transpose(rows(context, 3, 0, l), {0, 3, 1, 2, 4}), {b, l, n, h});
}

}  // namespace mt::layers
