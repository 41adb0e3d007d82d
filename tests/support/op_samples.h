// Samples for the gradients of ops without regions: one row or more for every rule.
#pragma once

#include <vector>

#include "ir/ops.h"
#include "support/gradient_check.h"

namespace mt::testing {

using SampleIn = const std::vector<ir::Value>&;
using SampleOut = std::vector<ir::Value>;

inline ir::Value s32(ir::Graph& graph, const Shape& shape, const std::vector<int32_t>& values) {
  return ir::constant(graph, Tensor::of<int32_t>(DType::kS32, shape, values));
}

inline ir::Value s32(SampleIn in, int32_t value) { return s32(*in[0].graph, {}, {value}); }

inline GradientSample unary_sample(ir::OpKind kind, ir::Value (*fn)(ir::Value, ir::Site),
                                   double low = -1, double high = 1) {
  return {kind, std::string(name(kind)), {{{2, 3}, low, high}}, [fn](SampleIn in) {
            return SampleOut{fn(in[0], ir::Site{})};
          }};
}

inline GradientSample binary_sample(ir::OpKind kind, const std::string& what, SampleInput a,
                                    SampleInput b,
                                    ir::Value (*fn)(ir::Value, ir::Value, ir::Site)) {
  return {
      kind, std::string(name(kind)) + " " + what, {std::move(a), std::move(b)}, [fn](SampleIn in) {
        return SampleOut{fn(in[0], in[1], ir::Site{})};
      }};
}

inline std::vector<GradientSample> elementwise_samples() {
  using ir::OpKind;
  const auto through = [](DType narrow) {
    return [narrow](SampleIn in) {
      return SampleOut{ir::cast(ir::cast(in[0], narrow) * 2.0, DType::kF64)};
    };
  };
  return {
      unary_sample(OpKind::kNegate, ir::negate),
      unary_sample(OpKind::kExp, ir::exp),
      unary_sample(OpKind::kLog, ir::log, 0.5, 2),
      unary_sample(OpKind::kLog1p, ir::log1p, -0.5, 2),
      unary_sample(OpKind::kTanh, ir::tanh),
      unary_sample(OpKind::kRsqrt, ir::rsqrt, 0.5, 2),
      unary_sample(OpKind::kSqrt, ir::sqrt, 0.5, 2),
      unary_sample(OpKind::kSine, ir::sin),
      unary_sample(OpKind::kCosine, ir::cos),
      unary_sample(OpKind::kAbs, ir::abs),
      {OpKind::kConvert, "convert f32", {{{2, 3}}}, through(DType::kF32), true},
      {OpKind::kConvert, "convert bf16", {{{2, 3}}}, through(DType::kBF16), true},
      {OpKind::kConvert, "convert f16", {{{2, 3}}}, through(DType::kF16), true},
      binary_sample(OpKind::kAdd, "row", {{2, 3}}, {{3}}, ir::add),
      binary_sample(OpKind::kAdd, "widened", {{2, 1}}, {{1, 3}}, ir::add),
      binary_sample(OpKind::kSubtract, "scalar", {{}}, {{2, 3}}, ir::subtract),
      binary_sample(OpKind::kMultiply, "row", {{3}}, {{2, 3}}, ir::multiply),
      binary_sample(OpKind::kMultiply, "widened", {{4, 1, 3}}, {{2, 1}}, ir::multiply),
      {OpKind::kMultiply,
       "square",
       {{{2, 3}}},
       [](SampleIn in) { return SampleOut{ir::square(in[0])}; }},
      binary_sample(OpKind::kDivide, "row", {{2, 3}}, {{3}, 0.5, 2}, ir::divide),
      binary_sample(OpKind::kMaximum, "row", {{2, 3}}, {{3}}, ir::maximum),
      binary_sample(OpKind::kMinimum, "column", {{2, 3}}, {{2, 1}}, ir::minimum),
      binary_sample(OpKind::kPower, "", {{2, 3}, 0.5, 2}, {{2, 3}, -2, 2}, ir::power),
      // Quotients stay between two whole numbers, on either side of zero.
      binary_sample(OpKind::kRemainder, "positive", {{2, 3}, 7.2, 8.3}, {{3}, 2.1, 2.3},
                    ir::remainder),
      binary_sample(OpKind::kRemainder, "negative", {{2, 3}, -8.3, -7.2}, {{3}, 2.1, 2.3},
                    ir::remainder),
      {OpKind::kSelect,
       "select",
       {{{2, 3}}, {{3}}, {{2, 1}}},
       [](SampleIn in) {
         const ir::Value zero = ir::full(*in[0].graph, DType::kF64, {}, 0);
         const ir::Value condition = ir::compare(in[0], ir::Direction::kGt, zero);
         return SampleOut{ir::select(condition, in[1], in[2]), in[0]};
       }},
  };
}

inline std::vector<GradientSample> moving_samples() {
  using ir::OpKind;
  return {
      {OpKind::kBroadcast,
       "broadcast, a size-1 axis widens",
       {{{1, 3}}},
       [](SampleIn in) {
         return SampleOut{ir::broadcast_in_dim(in[0], {2, 4, 3}, {1, 2})};
       }},
      {OpKind::kBroadcast,
       "broadcast of a scalar",
       {{{}}},
       [](SampleIn in) {
         return SampleOut{ir::broadcast_to(in[0], {2, 3})};
       }},
      {OpKind::kBroadcast,
       "broadcast into a middle axis",
       {{{3}}},
       [](SampleIn in) {
         return SampleOut{ir::broadcast_in_dim(in[0], {2, 3, 4}, {1})};
       }},
      {OpKind::kReshape,
       "reshape",
       {{{2, 6}}},
       [](SampleIn in) {
         return SampleOut{ir::reshape(in[0], {3, -1, 2})};
       }},
      {OpKind::kTranspose,
       "transpose",
       {{{2, 3, 4}}},
       [](SampleIn in) {
         return SampleOut{ir::transpose(in[0], {2, 0, 1})};
       }},
      {OpKind::kSlice,
       "slice with strides",
       {{{7, 6}}},
       [](SampleIn in) {
         return SampleOut{ir::slice(in[0], {1, 0}, {6, 6}, {2, 4})};
       }},
      {OpKind::kSlice,
       "slice to the end",
       {{{7}}},
       [](SampleIn in) { return SampleOut{ir::slice(in[0], {2}, {7}, {3})}; }},
      {OpKind::kSlice,
       "slice of an axis",
       {{{2, 5}}},
       [](SampleIn in) { return SampleOut{ir::slice_axis(in[0], -1, 1, 4)}; }},
      {OpKind::kPad,
       "pad",
       {{{2, 3}}},
       [](SampleIn in) {
         return SampleOut{ir::pad(in[0], 1.5, {1, 0}, {0, 2})};
       }},
      {OpKind::kPad,
       "pad inside",
       {{{2, 3}}},
       [](SampleIn in) {
         return SampleOut{ir::pad(in[0], 0, {1, 0}, {2, 0}, {1, 2})};
       }},
      {OpKind::kPad,
       "pad by less than nothing",
       {{{4, 5}}},
       [](SampleIn in) {
         return SampleOut{ir::pad(in[0], 0, {-1, 2}, {0, -3})};
       }},
      {OpKind::kPad,
       "pad inside and crop",
       {{{4}}},
       [](SampleIn in) { return SampleOut{ir::pad(in[0], 0, {-2}, {-1}, {2})}; }},
      {OpKind::kConcatenate,
       "concatenate",
       {{{2, 1}}, {{2, 3}}, {{2, 2}}},
       [](SampleIn in) { return SampleOut{ir::concatenate(in, -1)}; }},
      {OpKind::kConcatenate,
       "concatenate with itself",
       {{{2}}},
       [](SampleIn in) {
         return SampleOut{ir::concatenate({in[0], in[0]}, 0)};
       }},
      {OpKind::kDynamicSlice,
       "dynamic_slice",
       {{{4, 5}}},
       [](SampleIn in) {
         return SampleOut{ir::dynamic_slice(in[0], {s32(in, 1), s32(in, 2)}, {2, 3})};
       }},
      {OpKind::kDynamicSlice,
       "dynamic_slice, starts are clamped",
       {{{4, 5}}},
       [](SampleIn in) {
         return SampleOut{ir::dynamic_slice(in[0], {s32(in, 9), s32(in, -3)}, {2, 3})};
       }},
      {OpKind::kDynamicUpdateSlice,
       "dynamic_update_slice",
       {{{4, 5}}, {{2, 3}}},
       [](SampleIn in) {
         return SampleOut{ir::dynamic_update_slice(in[0], in[1], {s32(in, 1), s32(in, 2)})};
       }},
      {OpKind::kDynamicUpdateSlice,
       "dynamic_update_slice, starts are clamped",
       {{{4}}, {{2}}},
       [](SampleIn in) { return SampleOut{ir::dynamic_update_slice(in[0], in[1], {s32(in, 7)})}; }},
      {OpKind::kTakeRows,
       "take_rows, repeated and outside",
       {{{4, 2}}},
       [](SampleIn in) {
         return SampleOut{ir::take_rows(in[0], s32(*in[0].graph, {2, 3}, {1, 1, 3, -2, 9, 0}))};
       }},
      {OpKind::kTakeRows,
       "take_rows of numbers",
       {{{4}}},
       [](SampleIn in) {
         return SampleOut{ir::take_rows(in[0], s32(*in[0].graph, {2}, {3, 3}))};
       }},
      {OpKind::kScatterAddRows,
       "scatter_add_rows, repeated and outside",
       {{{4, 2}}, {{2, 3, 2}}},
       [](SampleIn in) {
         const ir::Value at = s32(*in[0].graph, {2, 3}, {1, 1, 3, -2, 9, 0});
         return SampleOut{ir::scatter_add_rows(in[0], at, in[1])};
       }},
      {OpKind::kTakeRows,
       "two looks at one table",
       {{{4, 2}}},
       [](SampleIn in) {
         ir::Graph& g = *in[0].graph;
         return SampleOut{ir::take_rows(in[0], s32(g, {2}, {1, 2})),
                          ir::take_rows(in[0], s32(g, {3}, {2, 2, 0})), in[0]};
       }},
  };
}

inline GradientSample einsum_sample(const std::string& formula, Shape a, Shape b) {
  return {
      ir::OpKind::kDotGeneral, formula, {{std::move(a)}, {std::move(b)}}, [formula](SampleIn in) {
        return SampleOut{ir::einsum(formula, in[0], in[1])};
      }};
}

inline std::vector<GradientSample> contracting_samples() {
  using ir::OpKind;
  return {
      {OpKind::kDotGeneral,
       "dot_general, two batch and two contracting axes",
       {{{2, 3, 4, 5, 6}}, {{5, 3, 7, 2, 4}}},
       [](SampleIn in) {
         return SampleOut{
             ir::dot_general(in[0], in[1], {{1, 0}, {1, 3}, {2, 3}, {4, 0}}, DType::kF64)};
       }},
      einsum_sample("bld,dnh->blnh", {2, 3, 4}, {4, 2, 3}),
      einsum_sample("btnh,bskh->btnsk", {2, 3, 2, 4}, {2, 3, 2, 4}),
      einsum_sample("bqnh,bknh->bnqk", {2, 3, 2, 4}, {2, 5, 2, 4}),
      einsum_sample("bnqk,bknh->bqnh", {2, 2, 3, 5}, {2, 5, 2, 4}),
      einsum_sample("ij,jk->ki", {2, 3}, {3, 4}),
      einsum_sample("ab,ab->a", {3, 4}, {3, 4}),
      einsum_sample("ab,ab->", {3, 4}, {3, 4}),
      einsum_sample("a,b->ba", {3}, {4}),
      {OpKind::kDotGeneral,
       "narrow factors, wide sum",
       {{{2, 3}}, {{3, 4}}},
       [](SampleIn in) {
         const ir::Value product = ir::einsum("ij,jk->ik", ir::cast(in[0], DType::kBF16),
                                              ir::cast(in[1], DType::kBF16), DType::kF32);
         return SampleOut{ir::cast(product, DType::kF64)};
       },
       true},
      {OpKind::kReduceSum,
       "reduce_sum",
       {{{2, 3, 4}}},
       [](SampleIn in) {
         return SampleOut{ir::reduce_sum(in[0], {0, -1})};
       }},
      {OpKind::kReduceSum,
       "mean, axes kept",
       {{{2, 3, 4}}},
       [](SampleIn in) { return SampleOut{ir::mean(in[0], {1}, true)}; }},
      {OpKind::kReduceMax,
       "reduce_max",
       {{{2, 3, 4}}},
       [](SampleIn in) {
         return SampleOut{ir::reduce_max(in[0], {0, 2})};
       }},
      {OpKind::kReduceMin,
       "reduce_min",
       {{{2, 3, 4}}},
       [](SampleIn in) { return SampleOut{ir::reduce_min(in[0], {1}, true)}; }},
  };
}

inline std::vector<GradientSample> shape_samples() {
  std::vector<GradientSample> all = moving_samples();
  for (GradientSample& sample : contracting_samples()) all.push_back(std::move(sample));
  return all;
}

}  // namespace mt::testing
