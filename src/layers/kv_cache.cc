#include "layers/kv_cache.h"

#include "layers/dot_product_attention.h"
#include "sharding/axes.h"

namespace mt::layers {
namespace {

namespace axes = sharding::axes;
using ir::Direction;
using ir::Value;

nnx::Variable cache_variable(DType dtype, const Shape& shape) {
  return nnx::Variable(nnx::VariableKind::kCache, {dtype, shape},
                       {std::string(axes::cache_batch), std::string(axes::cache_heads),
                        std::string(axes::cache_sequence), std::string(axes::cache_kv)});
}

Value integer(ir::Graph& g, int64_t v) {
  return ir::full(g, DType::kS32, {}, static_cast<double>(v));
}

// Of all integers, negative ones too: in [0, n).
Value modulo(Value x, int64_t n) {
  const Value divisor = integer(*x.graph, n);
  return ir::remainder(ir::remainder(x, divisor) + divisor, divisor);
}

// The position that each entry of the ring holds after `length` tokens, below 0 if it is empty:
// the last p < length with p mod C = entry. [B] -> [B, C]
Value positions(Value length_b, int64_t capacity) {
  ir::Graph& g = *length_b.graph;
  const Value entry = ir::iota(g, DType::kS32, {length_b.dim(0), capacity}, 1);
  const Value last = ir::expand_dims(length_b - 1.0, 1);
  return last - modulo(last - entry, capacity);
}

Value at_least(Value x, Value bound) { return ir::compare(x, Direction::kGe, bound); }

// Keys at `key_bs` that queries at `query_bt` see: none ahead, none beyond the window, none empty.
Value seen(Value query_bt, Value key_bs, int64_t window) {
  ir::Graph& g = *query_bt.graph;
  const Value q = ir::expand_dims(query_bt, 2), k = ir::expand_dims(key_bs, 1);
  Value keep = ir::logical_and(at_least(q, k), at_least(k, integer(g, 0)));
  if (window > 0) {
    keep = ir::logical_and(keep, ir::compare(q - k, Direction::kLt, integer(g, window)));
  }
  return keep;
}

// q [B, T, K, G, H] against keys and values [B, K, S, H], keep [B, T, S] -> [B, T, N, H].
Value attention(Value q_btnh, Value keys, Value values, Value keep) {
  const int64_t b = q_btnh.dim(0), t = q_btnh.dim(1), n = q_btnh.dim(2), h = q_btnh.dim(3);
  const int64_t kv = keys.dim(1), g = n / kv, s = keys.dim(2);
  ir::Graph& graph = *q_btnh.graph;
  const Value q = ir::reshape(ir::transpose(ir::reshape(q_btnh, {b, t, kv, g, h}), {0, 2, 3, 1, 4}),
                              {b, kv, g * t, h});
  const Value raw =
      ir::reshape(ir::einsum("bkth,bksh->bkts", q, keys, DType::kF32), {b, kv, g, t, s});
  const Value masked = ir::select(ir::reshape(keep, {b, 1, 1, t, s}), raw,
                                  ir::full(graph, DType::kF32, {}, kMaskValue));
  const Value p = ir::exp(masked - ir::reduce_max(masked, {-1}, true));
  const Value weights = ir::cast(p / ir::reduce_sum(p, {-1}, true), values.dtype());
  const Value context =
      ir::einsum("bkts,bksh->bkth", ir::reshape(weights, {b, kv, g * t, s}), values);
  return ir::reshape(ir::transpose(ir::reshape(context, {b, kv, g, t, h}), {0, 3, 1, 2, 4}),
                     {b, t, n, h});
}

// One token a row, x [B, K, 1, H], written in place: row by row, as each goes to an entry of its
// own.
Value put_token(Value ring, Value x, Value entry_b) {
  ir::Graph& g = *entry_b.graph;
  const Value zero = integer(g, 0);
  for (int64_t b = 0; b < x.dim(0); ++b) {
    const Value entry = ir::reshape(ir::slice_axis(entry_b, 0, b, b + 1), {});
    ring = ir::dynamic_update_slice(ring, ir::slice_axis(x, 0, b, b + 1),
                                    {integer(g, b), zero, entry, zero});
  }
  return ring;
}

// Many tokens a row, x [B, T, K, H]: every entry takes its token or keeps what it has.
Value put_tokens(Value ring, Value x, const CacheView& view) {
  const int64_t b = x.dim(0), t = x.dim(1), kv = x.dim(2), h = x.dim(3), c = ring.dim(2);
  const Value rows = ir::take_rows(ir::reshape(x, {b * t, kv * h}), view.source_bc);
  const Value taken = ir::transpose(ir::reshape(rows, {b, c, kv, h}), {0, 2, 1, 3});
  return ir::select(ir::reshape(view.is_new_bc, {b, 1, c, 1}), taken, ring);
}

}  // namespace

KVCache::KVCache(const CacheConfig& config, int64_t capacity, int64_t num_kv_heads,
                 int64_t head_dim)
    : cached_key(cache_variable(config.dtype, {config.rows, num_kv_heads, capacity, head_dim})),
      cached_value(cache_variable(config.dtype, {config.rows, num_kv_heads, capacity, head_dim})),
      cpu_kernels(config.cpu_kernels) {
  if (!is_scaled()) return;
  const auto scale = [&] {
    return std::make_unique<nnx::Variable>(
        cache_variable(DType::kF32, {config.rows, num_kv_heads, capacity, 1}));
  };
  cached_key_scale = scale();
  cached_value_scale = scale();
}

void KVCache::visit(nnx::Visitor& v) {
  v("cached_key", cached_key);
  v("cached_value", cached_value);
  if (!is_scaled()) return;
  v("cached_key_scale", *cached_key_scale);
  v("cached_value_scale", *cached_value_scale);
}

CacheView view_cache(const CachePass& pass, int64_t capacity, int64_t window) {
  ir::Graph& g = *pass.start_b.graph;
  const int64_t b = pass.start_b.dim(0), t = pass.tokens;
  CacheView view;
  view.tokens = t;
  view.start_b = pass.start_b;
  view.count_b = pass.count_b;
  view.window = window;
  const Value query =
      ir::expand_dims(pass.start_b, 1) + ir::iota(g, DType::kS32, {b, t}, 1);  // [B, T]
  if (t == 1) {
    view.entry_b = modulo(pass.start_b, capacity);
    view.keep = seen(query, positions(pass.start_b + 1.0, capacity), window);
    return view;
  }
  const Value offset = ir::iota(g, DType::kS32, {b, t}, 1);
  const Value real = ir::compare(offset, Direction::kLt, ir::expand_dims(pass.count_b, 1));
  const Value padding = ir::full(g, DType::kS32, {b, t}, -1);
  const Value fresh = ir::select(real, query, padding);
  // The ring may hold an entry of this row's former tenant at a position of now: it is empty.
  view.keep = seen(query, ir::concatenate({positions(pass.start_b, capacity), fresh}, 1), window);
  const Value after = positions(pass.start_b + pass.count_b, capacity);
  const Value from_start = after - ir::expand_dims(pass.start_b, 1);
  view.is_new_bc = at_least(from_start, integer(g, 0));
  const Value row = ir::iota(g, DType::kS32, {b, capacity}, 0) * static_cast<double>(t);
  view.source_bc = row + ir::maximum(from_start, integer(g, 0));
  return view;
}

namespace {

// Keys or values of a cache: its variable, and that of the scales where it has some.
struct Ring {
  nnx::Variable& entries;
  nnx::Variable* scales;
};

// What a cache holds of x [..., H].
struct Stored {
  Value entries, scales;  // the latter [..., 1], or nothing
};

Stored store(Value x, const Ring& ring) {
  if (ring.scales == nullptr) return {ir::cast(x, ring.entries.type.dtype), {}};
  const Value wide = ir::cast(x, DType::kF32);
  const Value scale = ir::reduce_max(ir::abs(wide), {-1}, true) / 127.0;
  const Value none = ir::compare(scale, Direction::kEq, ir::zeros_like(scale));
  const Value divisor = ir::select(none, ir::full(*x.graph, DType::kF32, {}, 1), scale);
  return {ir::cast(ir::floor(wide / divisor + 0.5), DType::kS8), scale};
}

Value load(const Stored& stored, DType dtype) {
  if (stored.scales.graph == nullptr) return ir::cast(stored.entries, dtype);
  return ir::cast(ir::cast(stored.entries, DType::kF32) * stored.scales, dtype);
}

Stored contents(const Ring& ring) {
  return {ring.entries.value, ring.scales == nullptr ? Value{} : ring.scales->value};
}

// Calls `put` for the entries, and for the scales where there are some.
template <typename Put>
void update(const Ring& ring, const Stored& x, const Put& put) {
  ring.entries.value = put(ring.entries.value, x.entries);
  if (ring.scales != nullptr) ring.scales->value = put(ring.scales->value, x.scales);
}

// The CPU's kernel does all of it in the caches' own memory.
Value attend_in_place(KVCache& cache, const CacheView& view, Value q, Value k, Value v) {
  std::vector<nnx::Variable*> variables{&cache.cached_key, &cache.cached_value};
  if (cache.is_scaled()) {
    variables.push_back(cache.cached_key_scale.get());
    variables.push_back(cache.cached_value_scale.get());
  }
  ir::CustomCallInfo call{.target = "mt_cache_attention", .integers = {{"window", view.window}}};
  std::vector<Value> operands{q, k, v, view.start_b, view.count_b};
  std::vector<ir::Type> results{q.type()};
  for (const nnx::Variable* variable : variables) {
    call.in_place[static_cast<int64_t>(results.size())] = static_cast<int64_t>(operands.size());
    operands.push_back(variable->value);
    results.push_back(variable->value.type());
  }
  const std::vector<Value> out = ir::custom_call(*q.graph, std::move(call), operands, results);
  for (size_t i = 0; i < variables.size(); ++i) variables[i]->value = out[i + 1];
  return out[0];
}

}  // namespace

Value attend_cache(KVCache& cache, const CacheView& view, Value q_btnh, Value k_btkh,
                   Value v_btkh) {
  if (cache.cpu_kernels) return attend_in_place(cache, view, q_btnh, k_btkh, v_btkh);
  const auto heads_first = [](Value x) { return ir::transpose(x, {0, 2, 1, 3}); };
  const Ring keys{cache.cached_key, cache.cached_key_scale.get()};
  const Ring values{cache.cached_value, cache.cached_value_scale.get()};
  const Stored k = store(k_btkh, keys), v = store(v_btkh, values);
  if (view.tokens == 1) {
    const auto put = [&](Value ring, Value x) {
      return put_token(ring, heads_first(x), view.entry_b);
    };
    update(keys, k, put);
    update(values, v, put);
    return attention(q_btnh, load(contents(keys), q_btnh.dtype()),
                     load(contents(values), q_btnh.dtype()), view.keep);
  }
  const auto with_new = [&](const Ring& ring, const Stored& x) {
    return ir::concatenate(
        {load(contents(ring), q_btnh.dtype()), heads_first(load(x, q_btnh.dtype()))}, 2);
  };
  const Value context = attention(q_btnh, with_new(keys, k), with_new(values, v), view.keep);
  const auto put = [&](Value ring, Value x) { return put_tokens(ring, x, view); };
  update(keys, k, put);
  update(values, v, put);
  return context;
}

}  // namespace mt::layers
