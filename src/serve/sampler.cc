#include "serve/sampler.h"

#include <limits>

#include "ir/random.h"
#include "kernels/sample.h"

namespace mt::serve {
namespace {

using ir::Direction;
using ir::Value;
using Values = std::vector<Value>;

static_assert(int{kTemperature} == int{kernels::kSampleTemperature} &&
              int{kTopK} == int{kernels::kSampleTopK} &&
              int{kNucleusP} == int{kernels::kSampleNucleusP} &&
              int{kMinP} == int{kernels::kSampleMinP} &&
              int{kAdjusts} == int{kernels::kSampleAdjusts});

Value unsigned_full(ir::Graph& g, const Shape& shape, uint32_t v) {
  return ir::full(g, DType::kU32, shape, static_cast<double>(v));
}

Value at_least(Value x, double bound) {
  return ir::compare(x, Direction::kGe, ir::full(*x.graph, x.dtype(), x.shape(), bound));
}

Value above(Value x, double bound) {
  return ir::compare(x, Direction::kGt, ir::full(*x.graph, x.dtype(), x.shape(), bound));
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
// found bit by bit: no sorting of a quarter of a million logits. 0 for rows that want none; no
// work at all if none does.
Value threshold(Value keys_bv, Value weights_bv, Value enough_b, Value wanted_b) {
  ir::Graph& g = ir::graph_of({keys_bv, weights_bv});
  const Value zero_b = unsigned_full(g, enough_b.shape(), 0);
  const Value bits = ir::reduce_max(ir::cast(wanted_b, DType::kU32), {0}) * 32.0;
  const auto more = [&](const Values& s) -> Values { return {above(s[1], 0)}; };
  const auto next = [&](const Values& s) -> Values {
    ir::Graph& inner = *s[0].graph;
    const Value at = s[1] - 1.0;
    const Value trial = ir::logical_or(s[0], ir::shift_left(unsigned_full(inner, {}, 1), at));
    const Value in = ir::compare(inner.import(keys_bv), Direction::kGe, ir::expand_dims(trial, 1));
    const Value weights = inner.import(weights_bv);
    const Value sum = ir::reduce_sum(ir::select(in, weights, ir::zeros_like(weights)), {1});
    const Value reached = ir::compare(sum, Direction::kGe, inner.import(enough_b));
    return {ir::select(reached, trial, s[0]), at};
  };
  return ir::select(wanted_b, ir::while_loop({zero_b, bits}, more, next)[0], zero_b);
}

Value probabilities(Value logits_bv) {
  const Value p = ir::exp(logits_bv - ir::reduce_max(logits_bv, {1}, true));
  return p / ir::reduce_sum(p, {1}, true);
}

Value column(Value settings_bn, Setting which) {
  return ir::squeeze(ir::slice_axis(settings_bn, 1, which, which + 1), 1);
}

Value nothing(ir::Graph& g) {
  return ir::full(g, DType::kF32, {}, -std::numeric_limits<double>::infinity());
}

// Logits without what the row's own limits exclude.
Value limited(Value logits_bv, Value settings_bn) {
  ir::Graph& g = *logits_bv.graph;
  const Value keys = ordered(logits_bv);
  const Value ones = ir::full(g, DType::kF32, logits_bv.shape(), 1);
  const Value top_k = column(settings_bn, kTopK), p = column(settings_bn, kNucleusP);
  const auto kept = [&](Value threshold_b, Value x_bv) {
    return ir::select(ir::compare(keys, Direction::kGe, ir::expand_dims(threshold_b, 1)), x_bv,
                      nothing(g));
  };
  const Value rank = threshold(keys, ones, top_k, above(top_k, 0));
  const Value top = kept(rank, logits_bv);
  const Value by_mass = ir::logical_and(above(p, 0), ir::logical_not(at_least(p, 1)));
  const Value mass = threshold(keys, probabilities(top), p, by_mass);
  const Value nucleus = kept(mass, top);
  const Value least = ir::reduce_max(logits_bv, {1}) + ir::log(column(settings_bn, kMinP));
  return ir::select(ir::compare(logits_bv, Direction::kGe, ir::expand_dims(least, 1)), nucleus,
                    nothing(g));
}

Value hits(Value x_bv, Value token_b) {
  const Value column = ir::iota(*x_bv.graph, DType::kS32, x_bv.shape(), 1);
  return ir::compare(column, Direction::kEq, ir::expand_dims(token_b, 1));
}

// log of the sum of exp: NaN if any logit is not finite.
Value log_sum(Value logits_bv) {
  ir::Graph& g = *logits_bv.graph;
  const Value top = ir::reduce_max(logits_bv, {1}, true);
  const Value sum = ir::log(ir::reduce_sum(ir::exp(logits_bv - top), {1})) + ir::squeeze(top, 1);
  const Value one = ir::full(g, DType::kF32, {}, 1), zero = ir::full(g, DType::kF32, {}, 0);
  const Value odd = ir::reduce_max(ir::select(ir::is_finite(logits_bv), zero, one), {1});
  const Value nan = ir::full(g, DType::kF32, {}, std::numeric_limits<double>::quiet_NaN());
  return ir::select(above(odd, 0), nan, sum);
}

Value logit_of(Value logits_bv, Value token_b) {
  return ir::reduce_sum(ir::select(hits(logits_bv, token_b), logits_bv, ir::zeros_like(logits_bv)),
                        {1});
}

// argmax of NaNs alone is the number of columns.
Value best(Value x_bv) {
  const Value last = ir::full(*x_bv.graph, DType::kS32, {}, static_cast<double>(x_bv.dim(1) - 1));
  return ir::minimum(ir::argmax(x_bv, 1), last);
}

Chosen with_log_prob(Value token_b, Value logits_bv) {
  return {token_b, log_prob_of(logits_bv, token_b)};
}

}  // namespace

Value log_prob_of(Value logits_bv, Value token_b) {
  return logit_of(logits_bv, token_b) - log_sum(logits_bv);
}

Chosen greedy(Value logits_bv, bool cpu_kernels) {
  if (!cpu_kernels) return with_log_prob(best(logits_bv), logits_bv);
  const Shape rows{logits_bv.dim(0)};
  const Values out = ir::custom_call(*logits_bv.graph, {.target = "mt_greedy"}, {logits_bv},
                                     {{DType::kS32, rows}, {DType::kF32, rows}});
  return {out[0], out[1]};
}

Chosen sample(Value logits_bv, Value adjusted_bv, Value settings_bn, Value keys_b2,
              bool cpu_kernels) {
  ir::Graph& g = *logits_bv.graph;
  if (cpu_kernels) {
    const Shape rows{logits_bv.dim(0)};
    const Values out =
        ir::custom_call(g, {.target = "mt_sample"}, {logits_bv, adjusted_bv, settings_bn, keys_b2},
                        {{DType::kS32, rows}, {DType::kF32, rows}});
    return {out[0], out[1]};
  }
  const Value temperature = column(settings_bn, kTemperature);
  // The largest of logit / T + Gumbel noise is a draw from softmax(logit / T). The uniform numbers
  // stay off 0, whose logarithm would be infinite; a smaller T is the same as this one, but for
  // quotients that are infinite.
  const Value uniform = ir::random_uniform(keys_b2, {logits_bv.dim(1)}, 0x1p-24, 1);
  const Value noise = -ir::log(-ir::log(uniform));
  const Value divisor = ir::maximum(temperature, ir::full(g, DType::kF32, {}, 1e-10));
  const Value noisy = limited(adjusted_bv, settings_bn) / ir::expand_dims(divisor, 1) + noise;
  const Value drawn = above(temperature, 0);
  const Chosen chosen = with_log_prob(ir::select(drawn, best(noisy), best(adjusted_bv)), logits_bv);
  const Chosen plain = greedy(logits_bv);
  const Value own = ir::logical_or(drawn, above(column(settings_bn, kAdjusts), 0));
  return {ir::select(own, chosen.token_b, plain.token_b),
          ir::select(own, chosen.log_prob_b, plain.log_prob_b)};
}

Value adjust(Value logits_bv, Value settings_bn, Value seen_bv, Value bias_bv) {
  const auto setting = [&](Setting which) {
    return ir::expand_dims(column(settings_bn, which), 1);
  };
  const Value biased = logits_bv + bias_bv;
  const Value repetition = setting(kRepetition);
  const Value repeated = ir::select(above(biased, 0), biased / repetition, biased * repetition);
  const Value once = ir::select(above(seen_bv, 0), repeated, biased);
  const Value times = ir::cast(
      ir::shift_right_logical(seen_bv, ir::full(*seen_bv.graph, DType::kS32, {}, 1)), DType::kF32);
  const Value present = ir::cast(above(seen_bv, 1), DType::kF32);
  const Value adjusted = once - times * setting(kFrequency) - present * setting(kPresence);
  return ir::select(above(setting(kAdjusts), 0), adjusted, logits_bv);
}

Value note(Value seen_bv, Value token_b) {
  return ir::select(hits(seen_bv, token_b), seen_bv + 2.0, seen_bv);
}

Alternatives most_likely(Value logits_bv, Value count) {
  ir::Graph& g = *logits_bv.graph;
  const int64_t b = logits_bv.dim(0);
  const Value total = log_sum(logits_bv);
  const Values state = ir::while_loop(
      {ir::full(g, DType::kS32, {}, 0), logits_bv,
       ir::full(g, DType::kS32, {b, kMostTopLogProbs}, 0),
       ir::full(g, DType::kF32, {b, kMostTopLogProbs}, 0)},
      [&](const Values& s) -> Values {
        return {ir::compare(s[0], Direction::kLt, s[0].graph->import(count))};
      },
      [&](const Values& s) -> Values {
        ir::Graph& inner = *s[0].graph;
        const Value token = best(s[1]);
        const Value log_prob = logit_of(s[1], token) - inner.import(total);
        const Values at{ir::full(inner, DType::kS32, {}, 0), s[0]};
        return {s[0] + 1.0, ir::select(hits(s[1], token), nothing(inner), s[1]),
                ir::dynamic_update_slice(s[2], ir::expand_dims(token, 1), at),
                ir::dynamic_update_slice(s[3], ir::expand_dims(log_prob, 1), at)};
      });
  return {state[2], state[3]};
}

}  // namespace mt::serve
