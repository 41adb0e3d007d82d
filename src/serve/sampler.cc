#include "serve/sampler.h"

#include <limits>

#include "ir/random.h"

namespace mt::serve {
namespace {

using ir::Direction;
using ir::Value;
using Values = std::vector<Value>;

Value unsigned_full(ir::Graph& g, const Shape& shape, uint32_t v) {
  return ir::full(g, DType::kU32, shape, static_cast<double>(v));
}

// Integers in the order of the floats.
Value ordered(Value x) {
  ir::Graph& g = *x.graph;
  const Value bits = ir::bitcast(x, DType::kU32);
  const Value negative = ir::compare(bits, Direction::kGe, unsigned_full(g, {}, 0x80000000U));
  return ir::logical_xor(bits, ir::select(negative, unsigned_full(g, {}, 0xFFFFFFFFU),
                                          unsigned_full(g, {}, 0x80000000U)));
}

// The largest threshold t[b] for which the weights of entries with key >= t still reach enough[b],
// found bit by bit: no sorting of a quarter of a million logits.
Value threshold(Value keys_bv, Value weights_bv, Value enough_b) {
  ir::Graph& g = ir::graph_of({keys_bv, weights_bv});
  ir::ScanOptions options;
  options.length = 32;
  options.reverse = true;
  return ir::scan({unsigned_full(g, enough_b.shape(), 0)}, {ir::iota(g, DType::kU32, {32}, 0)},
                  options, [&](const Values& s) -> Values {
                    ir::Graph& inner = *s[0].graph;
                    const Value bit = ir::shift_left(unsigned_full(inner, {}, 1), s[1]);
                    const Value trial = ir::logical_or(s[0], bit);
                    const Value in = ir::compare(inner.import(keys_bv), Direction::kGe,
                                                 ir::expand_dims(trial, 1));
                    const Value weights = inner.import(weights_bv);
                    const Value sum =
                        ir::reduce_sum(ir::select(in, weights, ir::zeros_like(weights)), {1});
                    const Value reached = ir::compare(sum, Direction::kGe, inner.import(enough_b));
                    return {ir::select(reached, trial, s[0])};
                  })[0];
}

Value probabilities(Value logits_bv) {
  const Value p = ir::exp(logits_bv - ir::reduce_max(logits_bv, {1}, true));
  return p / ir::reduce_sum(p, {1}, true);
}

// Logits without what the row's own limits exclude.
Value limited(Value logits_bv, const SamplingInputs& in) {
  ir::Graph& g = *logits_bv.graph;
  const Value nothing = ir::full(g, DType::kF32, {}, -std::numeric_limits<double>::infinity());
  const Value keys = ordered(logits_bv);
  const Value ones = ir::full(g, DType::kF32, logits_bv.shape(), 1);
  const Value zero_b = unsigned_full(g, in.top_k_b.shape(), 0);
  const Value by_rank = ir::compare(in.top_k_b, Direction::kGt, ir::zeros_like(in.top_k_b));
  const Value rank =
      ir::select(by_rank, threshold(keys, ones, ir::cast(in.top_k_b, DType::kF32)), zero_b);
  const Value top =
      ir::select(ir::compare(keys, Direction::kGe, ir::expand_dims(rank, 1)), logits_bv, nothing);
  const Value one_b = ir::full(g, DType::kF32, in.nucleus_p_b.shape(), 1);
  const Value by_mass =
      ir::logical_and(ir::compare(in.nucleus_p_b, Direction::kGt, ir::zeros_like(in.nucleus_p_b)),
                      ir::compare(in.nucleus_p_b, Direction::kLt, one_b));
  const Value mass =
      ir::select(by_mass, threshold(keys, probabilities(top), in.nucleus_p_b), zero_b);
  return ir::select(ir::compare(keys, Direction::kGe, ir::expand_dims(mass, 1)), top, nothing);
}

Chosen with_log_prob(Value token_b, Value logits_bv) {
  ir::Graph& g = *logits_bv.graph;
  const Value top = ir::reduce_max(logits_bv, {1}, true);
  const Value lse = ir::log(ir::reduce_sum(ir::exp(logits_bv - top), {1})) + ir::squeeze(top, 1);
  const Value column = ir::iota(g, DType::kS32, logits_bv.shape(), 1);
  const Value hit = ir::compare(column, Direction::kEq, ir::expand_dims(token_b, 1));
  const Value logit = ir::reduce_sum(ir::select(hit, logits_bv, ir::zeros_like(logits_bv)), {1});
  return {token_b, logit - lse};
}

}  // namespace

Chosen greedy(Value logits_bv) { return with_log_prob(ir::argmax(logits_bv, 1), logits_bv); }

Chosen sample(Value logits_bv, const SamplingInputs& in) {
  ir::Graph& g = *logits_bv.graph;
  const Value is_greedy =
      ir::compare(in.temperature_b, Direction::kLe, ir::zeros_like(in.temperature_b));
  const Value one_b = ir::full(g, DType::kF32, in.temperature_b.shape(), 1);
  const Value temperature = ir::select(is_greedy, one_b, in.temperature_b);
  // The largest of logit / T + Gumbel noise is a draw from softmax(logit / T). The uniform numbers
  // stay off 0, whose logarithm would be infinite.
  const Value uniform = ir::random_uniform(in.keys_b2, {logits_bv.dim(1)}, 0x1p-24, 1);
  const Value noise = -ir::log(-ir::log(uniform));
  const Value noisy = limited(logits_bv, in) / ir::expand_dims(temperature, 1) + noise;
  const Value token = ir::select(is_greedy, ir::argmax(logits_bv, 1), ir::argmax(noisy, 1));
  return with_log_prob(token, logits_bv);
}

}  // namespace mt::serve
