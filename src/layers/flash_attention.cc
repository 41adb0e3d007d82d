// Blockwise attention in plain StableHLO: a loop over query blocks, so that one block's scores
// exist at a time. With a window, a block meets one span of keys, as long as block and window;
// without one, an inner loop takes it over the key blocks that causality lets it see, with an
// online softmax.
//
// Backward, for one block (Dao et al. 2022, section 3): p = exp(s - lse), dv += p^T do,
// ds = p * (do v^T - delta), dq = ds k, dk += ds^T q, with delta = rowsum(do * o).
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "layers/dot_product_attention.h"

namespace mt::layers {
namespace {

using ir::Direction;
using ir::Value;
using Values = std::vector<Value>;

// Sizes of one call. Arrays inside: q, o [B, K, G, L, H]; k, v [B, K, L, H]; lse [B, K, G, L];
// L is padded to whole blocks.
struct Plan {
  int64_t block, blocks, window;
  // Keys that a query block's window touches, its own rows the last of them. The first `lead` of
  // block 0 lie before the sequence: k and v are padded there.
  int64_t span() const {
    const int64_t unit = std::min<int64_t>(block, 8);
    return (block + window - 1 + unit - 1) / unit * unit;
  }
  int64_t lead() const { return span() - block; }
};

// Short enough that little is computed which the mask hides: a block with a window meets
// block + window keys where window would do, and half of a block on the diagonal is hidden. Without
// a window the square of the block grows with the length, as the rest of the memory does.
int64_t block_length(int64_t length, int64_t window, int64_t most) {
  const auto root = static_cast<int64_t>(4 * std::sqrt(static_cast<double>(length)));
  const int64_t fine =
      window > 0 ? std::max<int64_t>(64, window / 4) : std::max<int64_t>(128, root);
  return std::min({most, (fine + 7) / 8 * 8, length});
}

Value rows(Value x, int64_t axis, int64_t from, int64_t to) {
  return ir::slice_axis(x, axis, from, to);
}

Value integer(ir::Graph& g, int64_t v) {
  return ir::full(g, DType::kS32, {}, static_cast<double>(v));
}

struct Inputs {
  Value q, k, v, segment;  // padded and transposed
};

// What meets a block of queries: its keys, values and segments, and where position and window let a
// query see a key.
struct Meeting {
  Value q, k, v, q_segment, k_segment;  // q [B, K, G, l, H]; k, v [B, K, s, H]
  Value seen;                           // pred [l, s]
};

// Whether a query at row r sees a key at column c that lies `shift` positions behind it for r = c.
Value sees(Value shift, int64_t queries, int64_t keys, int64_t window) {
  ir::Graph& g = *shift.graph;
  const Value row = ir::iota(g, DType::kS32, {queries, keys}, 0);
  const Value distance = row - ir::iota(g, DType::kS32, {queries, keys}, 1) + shift;
  const Value causal = ir::compare(distance, Direction::kGe, integer(g, 0));
  if (window == 0) return causal;
  return ir::logical_and(causal, ir::compare(distance, Direction::kLt, integer(g, window)));
}

// [B, K, G, l, ...] -> [B, K, G * l, ...]
Value flat(Value x) {
  Shape shape{x.dim(0), x.dim(1), x.dim(2) * x.dim(3)};
  if (x.rank() == 5) shape.push_back(x.dim(4));
  return ir::reshape(x, shape);
}

Value masked(Value raw, Value keep) {
  return ir::select(keep, raw, ir::full(*raw.graph, DType::kF32, {}, kMaskValue));
}

// Float32 scores [B, K, G, l, s].
Value scores(const Meeting& m) {
  const int64_t b = m.q.dim(0), kv = m.q.dim(1), g = m.q.dim(2), l = m.q.dim(3), s = m.k.dim(2);
  const Value raw = ir::dot_general(flat(m.q), m.k, {{0, 1}, {0, 1}, {3}, {3}}, DType::kF32);
  const Value same =
      ir::compare(ir::expand_dims(m.q_segment, 2), Direction::kEq, ir::expand_dims(m.k_segment, 1));
  const Value keep = ir::reshape(ir::logical_and(same, m.seen), {b, 1, 1, l, s});
  return masked(ir::reshape(raw, {b, kv, g, l, s}), keep);
}

// p [B, K, G, l, s] times v [B, K, s, H] -> float32 [B, K, G, l, H].
Value times_values(Value p, Value v) {
  const int64_t b = p.dim(0), kv = p.dim(1), g = p.dim(2), l = p.dim(3);
  const Value product =
      ir::dot_general(flat(ir::cast(p, v.dtype())), v, {{0, 1}, {0, 1}, {3}, {2}}, DType::kF32);
  return ir::reshape(product, {b, kv, g, l, v.dim(3)});
}

// {context in v's dtype, lse} of a block that meets all its keys at once.
Values forward_block(const Meeting& m) {
  const Value s = scores(m);
  const Value top = ir::reduce_max(s, {-1}, true);
  const Value p = ir::exp(s - top);
  const Value sum = ir::reduce_sum(p, {-1}, true);
  const Value o = times_values(p, m.v) / sum;
  return {ir::cast(o, m.v.dtype()), ir::squeeze(top + ir::log(sum), -1)};
}

struct BlockGradient {
  Value dq, dk, dv;  // float32
};

// All with keys first, [B, K, s, G, l]: then two of the three gradients multiply rows by columns.
BlockGradient block_gradient(const Meeting& m, Value lse, Value d_out, Value delta) {
  const int64_t b = m.q.dim(0), kv = m.q.dim(1), g = m.q.dim(2), l = m.q.dim(3), s = m.k.dim(2);
  const Value q = flat(m.q), d = flat(d_out);
  const auto by_keys = [&](Value keys, Value queries) {
    const Value product = ir::dot_general(keys, queries, {{0, 1}, {0, 1}, {3}, {3}}, DType::kF32);
    return ir::reshape(product, {b, kv, s, g, l});
  };
  const auto times_queries = [&](Value p, Value queries) {
    const Value narrow = ir::reshape(ir::cast(p, queries.dtype()), {b, kv, s, g * l});
    return ir::dot_general(narrow, queries, {{0, 1}, {0, 1}, {3}, {2}}, DType::kF32);
  };
  const Value same =
      ir::compare(ir::expand_dims(m.k_segment, 2), Direction::kEq, ir::expand_dims(m.q_segment, 1));
  const Value keep =
      ir::reshape(ir::logical_and(same, ir::transpose(m.seen, {1, 0})), {b, 1, s, 1, l});
  const Value p = ir::exp(masked(by_keys(m.k, q), keep) - ir::expand_dims(lse, 2));
  const Value ds = p * (by_keys(m.v, d) - ir::expand_dims(delta, 2));
  const Value ds_narrow = ir::reshape(ir::cast(ds, m.k.dtype()), {b, kv, s, g * l});
  const Value dq = ir::dot_general(ds_narrow, m.k, {{0, 1}, {0, 1}, {2}, {2}}, DType::kF32);
  return {ir::reshape(dq, {b, kv, g, l, m.k.dim(3)}), times_queries(ds, q), times_queries(p, d)};
}

Value row_delta(Value d_out, Value out) {
  return ir::reduce_sum(ir::cast(d_out, DType::kF32) * ir::cast(out, DType::kF32), {-1});
}

// --- query blocks of an array, as the xs and ys of a scan

// [..., L, ...] -> [..., blocks, block, ...]
Value cut(Value x, int64_t axis, const Plan& plan) {
  Shape shape = x.shape();
  shape[static_cast<size_t>(axis)] = plan.block;
  shape.insert(shape.begin() + axis, plan.blocks);
  return ir::reshape(x, shape);
}

Value uncut(Value x, int64_t axis) {
  Shape shape = x.shape();
  shape[static_cast<size_t>(axis)] *= shape[static_cast<size_t>(axis) + 1];
  shape.erase(shape.begin() + axis + 1);
  return ir::reshape(x, shape);
}

// `size` rows from row `start`, a s32 scalar.
Value take_rows_at(Value x, int64_t axis, Value start, int64_t size) {
  Shape sizes = x.shape();
  sizes[static_cast<size_t>(axis)] = size;
  Values starts(static_cast<size_t>(x.rank()), integer(ir::graph_of({x, start}), 0));
  starts[static_cast<size_t>(axis)] = start;
  return ir::dynamic_slice(x, starts, sizes);
}

Value add_rows_at(Value x, Value update, int64_t axis, Value start) {
  Values starts(static_cast<size_t>(x.rank()), integer(ir::graph_of({x, start}), 0));
  starts[static_cast<size_t>(axis)] = start;
  const Value sum = take_rows_at(x, axis, start, update.dim(axis)) + update;
  return ir::dynamic_update_slice(x, sum, starts);
}

// The keys of a windowed block: a span that ends with the block's own rows.
Meeting windowed(const Inputs& padded, const Plan& plan, Value seen, Value i, Value q,
                 Value q_segment) {
  const Value start = i * static_cast<double>(plan.block);  // in k and v with their lead
  return {q,
          take_rows_at(padded.k, 2, start, plan.span()),
          take_rows_at(padded.v, 2, start, plan.span()),
          q_segment,
          take_rows_at(padded.segment, 1, start, plan.span()),
          seen};
}

// Key block j meets query block i.
Meeting pair(const Inputs& in, const Plan& plan, Value i, Value j, Value q, Value q_segment) {
  const Value start = j * static_cast<double>(plan.block);
  return {q,
          take_rows_at(in.k, 2, start, plan.block),
          take_rows_at(in.v, 2, start, plan.block),
          q_segment,
          take_rows_at(in.segment, 1, start, plan.block),
          sees((i - j) * static_cast<double>(plan.block), plan.block, plan.block, 0)};
}

// Runs body for key blocks j = 0 .. i.
Values over_key_blocks(Value i, Values state,
                       const std::function<Values(Value j, const Values&)>& body) {
  state.insert(state.begin(), i * 0.0);
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
Values forward_over_keys(const Inputs& in, const Plan& plan, Value i, Value q, Value q_segment) {
  ir::Graph& g = *q.graph;
  const Shape column{q.dim(0), q.dim(1), q.dim(2), plan.block, 1};
  const Values end = over_key_blocks(
      i,
      {ir::full(g, DType::kF32, q.shape(), 0), ir::full(g, DType::kF32, column, kMaskValue),
       ir::full(g, DType::kF32, column, 0)},
      [&](Value j, const Values& state) -> Values {
        const Meeting m = pair(in, plan, i, j, q, q_segment);
        const Value s = scores(m);
        const Value top = ir::maximum(state[1], ir::reduce_max(s, {-1}, true));
        const Value p = ir::exp(s - top), fade = ir::exp(state[1] - top);
        return {state[0] * fade + times_values(p, m.v), top,
                state[2] * fade + ir::reduce_sum(p, {-1}, true)};
      });
  return {ir::cast(end[0] / end[2], in.v.dtype()), ir::squeeze(end[1] + ir::log(end[2]), -1)};
}

// k, v and segments with the lead of the first block in front; nothing is of the lead's segment.
Inputs with_lead(const Inputs& in, const Plan& plan) {
  const auto lead = [&](Value x, int64_t axis, double filler) {
    std::vector<int64_t> low(static_cast<size_t>(x.rank()), 0), high = low;
    low[static_cast<size_t>(axis)] = plan.lead();
    return ir::pad(x, filler, low, high);
  };
  return {in.q, lead(in.k, 2, 0), lead(in.v, 2, 0), lead(in.segment, 1, -2)};
}

// The only block meets all keys.
Meeting whole(const Inputs& in, const Plan& plan) {
  const Value seen = sees(integer(*in.q.graph, 0), plan.block, plan.block, plan.window);
  return {in.q, in.k, in.v, in.segment, in.segment, seen};
}

// Where a window's queries see the span of their keys: the same for every block.
Value seen_of_span(ir::Graph& g, const Plan& plan) {
  if (plan.window == 0) return {};
  return sees(integer(g, plan.lead()), plan.block, plan.span(), plan.window);
}

// {context, lse}
Values forward(const Inputs& in, const Plan& plan) {
  ir::Graph& g = *in.q.graph;
  if (plan.blocks == 1) {
    return forward_block(whole(in, plan));
  }
  const Inputs keys = plan.window > 0 ? with_lead(in, plan) : in;
  const Value seen = seen_of_span(g, plan);
  ir::ScanOptions options;
  options.length = plan.blocks;
  options.x_axes = {0, 3, 1};
  options.y_axes = {3, 3};
  const Values r = ir::scan(
      {},
      {ir::iota(g, DType::kS32, {plan.blocks}, 0), cut(in.q, 3, plan), cut(in.segment, 1, plan)},
      options, [&](const Values& s) -> Values {
        return plan.window > 0 ? forward_block(windowed(keys, plan, seen, s[0], s[1], s[2]))
                               : forward_over_keys(keys, plan, s[0], s[1], s[2]);
      });
  return {uncut(r[0], 3), uncut(r[1], 3)};
}

// {dq, dk, dv} in float32.
Values backward(const Inputs& in, Value out, Value lse, Value d_out, const Plan& plan) {
  ir::Graph& g = ir::graph_of({d_out, in.q});
  const Value delta = row_delta(d_out, out);
  if (plan.blocks == 1) {
    const BlockGradient r = block_gradient(whole(in, plan), lse, d_out, delta);
    return {r.dq, r.dk, r.dv};
  }
  const Inputs keys = plan.window > 0 ? with_lead(in, plan) : in;
  const Value seen = seen_of_span(g, plan);
  const Value no_gradient = ir::full(g, DType::kF32, keys.k.shape(), 0);
  ir::ScanOptions options;
  options.length = plan.blocks;
  options.x_axes = {0, 3, 1, 3, 3, 3};
  options.y_axes = {3};
  const Values r = ir::scan(
      {no_gradient, no_gradient},
      {ir::iota(g, DType::kS32, {plan.blocks}, 0), cut(in.q, 3, plan), cut(in.segment, 1, plan),
       cut(lse, 3, plan), cut(d_out, 3, plan), cut(delta, 3, plan)},
      options, [&](const Values& s) -> Values {
        const Value i = s[2], q = s[3], segment = s[4];
        const auto gradient = [&](const Meeting& m) { return block_gradient(m, s[5], s[6], s[7]); };
        if (plan.window > 0) {
          const Value start = i * static_cast<double>(plan.block);
          const BlockGradient b = gradient(windowed(keys, plan, seen, i, q, segment));
          return {add_rows_at(s[0], b.dk, 2, start), add_rows_at(s[1], b.dv, 2, start), b.dq};
        }
        const Values end =
            over_key_blocks(i, {s[0], s[1], ir::full(*q.graph, DType::kF32, q.shape(), 0)},
                            [&](Value j, const Values& t) -> Values {
                              const Value start = j * static_cast<double>(plan.block);
                              const BlockGradient b = gradient(pair(keys, plan, i, j, q, segment));
                              return {add_rows_at(t[0], b.dk, 2, start),
                                      add_rows_at(t[1], b.dv, 2, start), t[2] + b.dq};
                            });
        return end;
      });
  const int64_t lead = keys.k.dim(2) - in.k.dim(2);
  return {uncut(r[2], 3), rows(r[0], 2, lead, keys.k.dim(2)), rows(r[1], 2, lead, keys.k.dim(2))};
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
  const int64_t window = mask.window < l ? mask.window : 0;  // one that hides nothing is none
  const int64_t block = block_length(l, window, options.block_q);
  const int64_t blocks = (l + block - 1) / block;
  const Plan plan{block, blocks, window};

  const Value q = pad_rows(ir::transpose(ir::reshape(q_blnh, {b, l, kv, g, h}), {0, 2, 3, 1, 4}), 3,
                           block * blocks);
  const Value k = pad_rows(ir::transpose(k_blkh, {0, 2, 1, 3}), 2, block * blocks);
  const Value v = pad_rows(ir::transpose(v_blkh, {0, 2, 1, 3}), 2, block * blocks);
  const Value segment = pad_rows(mask.segment_ids_bl, 1, block * blocks, -1);

  const Values result = ir::custom_vjp(
      "flash_attention", {q, k, v, segment},
      [&](const Values& in) {
        const Inputs inputs{in[0], in[1], in[2], in[3]};
        return forward(inputs, plan);
      },
      [plan](const Values& in, const Values& out, const Values& cotangents) -> Values {
        const Inputs inputs{in[0], in[1], in[2], in[3]};
        const Values d = backward(inputs, out[0], out[1], cotangents[0], plan);
        return {ir::cast(d[0], in[0].dtype()), ir::cast(d[1], in[1].dtype()),
                ir::cast(d[2], in[2].dtype()), Value{}};
      });
  const Value context = ir::checkpoint_name(result[0], "context");
  ir::checkpoint_name(result[1], "context");
  return ir::reshape(ir::transpose(rows(context, 3, 0, l), {0, 3, 1, 2, 4}), {b, l, n, h});
}

}  // namespace mt::layers
