#include "autodiff/rules.h"

#include <algorithm>

#include "base/error.h"

namespace mt::autodiff {
namespace {

using ir::OpKind;
using ir::Value;
using In = const RuleInput&;
using Out = std::vector<Value>;

Value ct(In in) { return in.cotangents[0]; }
Value x(In in) { return in.operands[0]; }
Value y(In in) { return in.results[0]; }
Value constant_like(Value v, double c) { return ir::full(*v.graph, v.dtype(), v.shape(), c); }

// Sums in float32 for 16-bit floats: a bf16 accumulator would lose most of a long sum.
Value sum_axes(Value v, const std::vector<int64_t>& axes) {
  if (byte_size(v.dtype()) >= 4) return ir::reduce_sum(v, axes);
  return ir::cast(ir::reduce_sum(ir::cast(v, DType::kF32), axes), v.dtype());
}

// --- elementwise
Out negate(In in) { return {-ct(in)}; }
Out exp(In in) { return {ct(in) * y(in)}; }
Out log(In in) { return {ct(in) / x(in)}; }
Out log1p(In in) { return {ct(in) / (x(in) + 1.0)}; }
Out tanh(In in) { return {ct(in) * (1.0 - y(in) * y(in))}; }
Out rsqrt(In in) { return {ct(in) * (y(in) * y(in) * y(in)) * -0.5}; }
Out sqrt(In in) { return {ct(in) * 0.5 / y(in)}; }
Out sine(In in) { return {ct(in) * ir::cos(x(in))}; }
Out cosine(In in) { return {-(ct(in) * ir::sin(x(in)))}; }
Out abs(In in) { return {ct(in) * ir::sign(x(in))}; }
Out convert(In in) { return {ir::cast(ct(in), x(in).dtype())}; }
Out add(In in) { return {ct(in), ct(in)}; }
Out subtract(In in) { return {ct(in), in.wanted[1] ? -ct(in) : Value{}}; }
Out multiply(In in) {
  return {in.wanted[0] ? ct(in) * in.operands[1] : Value{},
          in.wanted[1] ? ct(in) * in.operands[0] : Value{}};
}
Out divide(In in) {
  const Value b = in.operands[1];
  return {in.wanted[0] ? ct(in) / b : Value{}, in.wanted[1] ? -(ct(in) * y(in) / b) : Value{}};
}

// The larger (smaller) operand takes the cotangent; equal operands share it.
Out extremum(In in) {
  const Value a = in.operands[0], b = in.operands[1];
  const Value share =
      ir::select(ir::compare(a, ir::Direction::kEq, b), constant_like(a, 0.5), constant_like(a, 1));
  const auto side = [&](Value mine) {
    return ir::select(ir::compare(mine, ir::Direction::kEq, y(in)), ct(in) * share,
                      constant_like(a, 0));
  };
  return {in.wanted[0] ? side(a) : Value{}, in.wanted[1] ? side(b) : Value{}};
}

Out power(In in) {
  const Value a = in.operands[0], b = in.operands[1];
  return {in.wanted[0] ? ct(in) * b * ir::power(a, b - 1.0) : Value{},
          in.wanted[1] ? ct(in) * y(in) * ir::log(a) : Value{}};
}

// a - b*trunc(a/b): the slope in b is -trunc(a/b) = (r - a)/b.
Out remainder(In in) {
  return {ct(in), in.wanted[1] ? ct(in) * (y(in) - in.operands[0]) / in.operands[1] : Value{}};
}

Out select(In in) {
  const Value zero = constant_like(ct(in), 0);
  return {Value{}, in.wanted[1] ? ir::select(in.operands[0], ct(in), zero) : Value{},
          in.wanted[2] ? ir::select(in.operands[0], zero, ct(in)) : Value{}};
}

// --- shape
Out broadcast(In in) {
  const auto& map = std::get<ir::Axes>(in.node().attributes).axes;
  std::vector<int64_t> summed;
  for (int64_t i = 0; i < ct(in).rank(); ++i) {
    const auto it = std::find(map.begin(), map.end(), i);
    const bool widened = it != map.end() && x(in).dim(it - map.begin()) != ct(in).dim(i);
    if (it == map.end() || widened) summed.push_back(i);
  }
  return {ir::reshape(sum_axes(ct(in), summed), x(in).shape())};
}

Out reshape(In in) { return {ir::reshape(ct(in), x(in).shape())}; }

Out transpose(In in) {
  const auto& permutation = std::get<ir::Axes>(in.node().attributes).axes;
  std::vector<int64_t> inverse(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i) {
    inverse[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
  }
  return {ir::transpose(ct(in), inverse)};
}

Out slice(In in) {
  const auto a = std::get<ir::SliceDims>(in.node().attributes);
  std::vector<int64_t> high, interior;
  for (size_t i = 0; i < a.start.size(); ++i) {
    const int64_t n = ct(in).shape()[i];
    interior.push_back(a.stride[i] - 1);
    const int64_t last = n == 0 ? a.start[i] : a.start[i] + (n - 1) * a.stride[i] + 1;
    high.push_back(x(in).shape()[i] - last);
  }
  return {ir::pad(ct(in), 0, a.start, high, interior)};
}

// The filler is a constant by construction (ops.h), so only the operand has a gradient.
Out pad(In in) {
  const auto a = std::get<ir::PadDims>(in.node().attributes);
  std::vector<int64_t> low, high, stride;
  for (size_t i = 0; i < a.low.size(); ++i) {
    low.push_back(-a.low[i]);
    high.push_back(-a.high[i]);
    stride.push_back(a.interior[i] + 1);
  }
  const Value cropped = ir::pad(ct(in), 0, low, high);
  const std::vector<int64_t> start(low.size(), 0);
  return {ir::slice(cropped, start, cropped.shape(), stride), Value{}};
}

Out concatenate(In in) {
  const int64_t axis = std::get<ir::Axes>(in.node().attributes).axes[0];
  Out out;
  int64_t at = 0;
  for (const Value& part : in.operands) {
    out.push_back(ir::slice_axis(ct(in), axis, at, at + part.dim(axis)));
    at += part.dim(axis);
  }
  return out;
}

Out dynamic_slice(In in) {
  const Out starts(in.operands.begin() + 1, in.operands.end());
  Out out(in.operands.size());
  out[0] = ir::dynamic_update_slice(ir::zeros_like(x(in)), ct(in), starts);
  return out;
}

Out dynamic_update_slice(In in) {
  const Out starts(in.operands.begin() + 2, in.operands.end());
  const Value update = in.operands[1];
  Out out(in.operands.size());
  if (in.wanted[0]) out[0] = ir::dynamic_update_slice(ct(in), ir::zeros_like(update), starts);
  if (in.wanted[1]) out[1] = ir::dynamic_slice(ct(in), starts, update.shape());
  return out;
}

// take_rows clamps its indices, scatter drops what is outside: clamp here so that they agree.
Out take_rows(In in) {
  const Value table = x(in), indices = in.operands[1];
  const auto bound = [&](double v) { return ir::full(in.graph, indices.dtype(), {}, v); };
  const Value clamped =
      ir::minimum(ir::maximum(indices, bound(0)), bound(static_cast<double>(table.dim(0) - 1)));
  return {ir::scatter_add_rows(ir::zeros_like(table), clamped, ct(in)), Value{}};
}

Out scatter_add_rows(In in) {
  const Value indices = in.operands[1];
  Out out(3);
  out[0] = ct(in);
  if (!in.wanted[2]) return out;
  const auto bound = [&](double v) { return ir::full(in.graph, indices.dtype(), {}, v); };
  const Value inside = ir::logical_and(
      ir::compare(indices, ir::Direction::kGe, bound(0)),
      ir::compare(indices, ir::Direction::kLt, bound(static_cast<double>(x(in).dim(0)))));
  const Value rows = ir::take_rows(ct(in), indices);
  std::vector<int64_t> map;
  for (int64_t i = 0; i < indices.rank(); ++i) map.push_back(i);
  out[2] = ir::select(ir::broadcast_in_dim(inside, rows.shape(), map), rows, ir::zeros_like(rows));
  return out;
}

// --- contraction and reduction
// With letters for the axes, d(lhs) = einsum(out, rhs -> lhs) and d(rhs) = einsum(out, lhs -> rhs).
Out dot_general(In in) {
  const auto d = std::get<ir::DotDims>(in.node().attributes);
  const Value lhs = in.operands[0], rhs = in.operands[1];
  std::string l(static_cast<size_t>(lhs.rank()), ' '), r(static_cast<size_t>(rhs.rank()), ' '), out;
  char next = 'a';
  const auto pair = [&](const std::vector<int64_t>& a, const std::vector<int64_t>& b, bool kept) {
    for (size_t i = 0; i < a.size(); ++i, ++next) {
      l[static_cast<size_t>(a[i])] = r[static_cast<size_t>(b[i])] = next;
      if (kept) out += next;
    }
  };
  pair(d.lhs_batch, d.rhs_batch, true);
  pair(d.lhs_contract, d.rhs_contract, false);
  for (std::string* side : {&l, &r}) {
    for (char& c : *side) {
      if (c == ' ') out += c = next++;
    }
  }
  const Value c = ir::cast(ct(in), lhs.dtype());
  return {in.wanted[0] ? ir::einsum(out + "," + r + "->" + l, c, rhs, lhs.dtype()) : Value{},
          in.wanted[1] ? ir::einsum(out + "," + l + "->" + r, c, lhs, rhs.dtype()) : Value{}};
}

// The axes of the operand that survive a reduction.
std::vector<int64_t> kept_axes(In in) {
  const auto& axes = std::get<ir::Axes>(in.node().attributes).axes;
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < x(in).rank(); ++i) {
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) kept.push_back(i);
  }
  return kept;
}

Out reduce_sum(In in) { return {ir::broadcast_in_dim(ct(in), x(in).shape(), kept_axes(in))}; }

// Equal extremes share the cotangent.
Out reduce_extremum(In in) {
  const auto axes = std::get<ir::Axes>(in.node().attributes).axes;
  const auto spread = [&](Value v) {
    return ir::broadcast_in_dim(v, x(in).shape(), kept_axes(in));
  };
  const Value hit = ir::cast(ir::compare(x(in), ir::Direction::kEq, spread(y(in))), x(in).dtype());
  return {hit * spread(ct(in) / sum_axes(hit, axes))};
}

// --- structure
Out pass_all(In in) { return in.cotangents; }
// A name of two operands has the second's value and the first's gradient (ir/graph.h).
Out tag(In in) {
  Out out(in.operands.size());
  out[0] = ct(in);
  return out;
}
Out sharding_constraint(In in) {
  return {ir::sharding_constraint(ct(in), std::get<ir::Spec>(in.node().attributes).spec)};
}

constexpr RuleRow rule(OpKind kind, Rule r) { return {kind, r, "", false}; }
constexpr RuleRow none(OpKind kind, const char* why) { return {kind, nullptr, why, false}; }
constexpr RuleRow refuse(OpKind kind, const char* why) { return {kind, nullptr, why, true}; }
constexpr const char* kFlat = "constant almost everywhere";
constexpr const char* kDiscrete = "works on integers or bools";

constexpr std::array<RuleRow, ir::kOpCount> kTable{{
    none(OpKind::kParameter, "a leaf"),
    none(OpKind::kConstant, "a leaf"),
    none(OpKind::kIota, "a leaf"),
    rule(OpKind::kNegate, negate),
    rule(OpKind::kExp, exp),
    rule(OpKind::kLog, log),
    rule(OpKind::kLog1p, log1p),
    rule(OpKind::kTanh, tanh),
    rule(OpKind::kRsqrt, rsqrt),
    rule(OpKind::kSqrt, sqrt),
    rule(OpKind::kSine, sine),
    rule(OpKind::kCosine, cosine),
    rule(OpKind::kAbs, abs),
    none(OpKind::kSign, kFlat),
    none(OpKind::kFloor, kFlat),
    none(OpKind::kNot, kDiscrete),
    rule(OpKind::kConvert, convert),
    none(OpKind::kBitcast, kDiscrete),
    none(OpKind::kIsFinite, kDiscrete),
    rule(OpKind::kAdd, add),
    rule(OpKind::kSubtract, subtract),
    rule(OpKind::kMultiply, multiply),
    rule(OpKind::kDivide, divide),
    rule(OpKind::kMaximum, extremum),
    rule(OpKind::kMinimum, extremum),
    rule(OpKind::kPower, power),
    rule(OpKind::kRemainder, remainder),
    none(OpKind::kAnd, kDiscrete),
    none(OpKind::kOr, kDiscrete),
    none(OpKind::kXor, kDiscrete),
    none(OpKind::kShiftLeft, kDiscrete),
    none(OpKind::kShiftRightLogical, kDiscrete),
    none(OpKind::kCompare, kDiscrete),
    rule(OpKind::kSelect, select),
    rule(OpKind::kBroadcast, broadcast),
    rule(OpKind::kReshape, reshape),
    rule(OpKind::kTranspose, transpose),
    rule(OpKind::kSlice, slice),
    rule(OpKind::kPad, pad),
    rule(OpKind::kConcatenate, concatenate),
    rule(OpKind::kDynamicSlice, dynamic_slice),
    rule(OpKind::kDynamicUpdateSlice, dynamic_update_slice),
    rule(OpKind::kTakeRows, take_rows),
    rule(OpKind::kScatterAddRows, scatter_add_rows),
    rule(OpKind::kDotGeneral, dot_general),
    rule(OpKind::kReduceSum, reduce_sum),
    rule(OpKind::kReduceMax, reduce_extremum),
    rule(OpKind::kReduceMin, reduce_extremum),
    rule(OpKind::kName, tag),
    rule(OpKind::kBarrier, pass_all),
    rule(OpKind::kShardingConstraint, sharding_constraint),
    refuse(OpKind::kCustomCall, "a custom call has no gradient of its own; wrap it in custom_vjp"),
    refuse(OpKind::kWhile, "a while loop has no reverse mode; use scan, or wrap it in custom_vjp"),
    rule(OpKind::kScan, scan_rule),
    rule(OpKind::kRemat, remat_rule),
    rule(OpKind::kCustomVjp, custom_vjp_rule),
    refuse(OpKind::kManualComputation,
           "a manual computation has no gradient of its own; wrap it in custom_vjp"),
    refuse(OpKind::kAllReduce, "differentiate outside of the manual computation"),
}};

constexpr bool complete() {
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (kTable[i].kind != static_cast<OpKind>(i)) return false;
    if (kTable[i].reason == nullptr) return false;
  }
  return true;
}
static_assert(complete(), "autodiff/rules.cc: an op has no row, or the rows are out of order");

}  // namespace

const std::array<RuleRow, ir::kOpCount> kRules = kTable;

}  // namespace mt::autodiff
