// Leaves and elementwise operations.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "ir/ops.h"

namespace mt::ir {
namespace {

Value unary(OpKind kind, Value x, DType result) {
  return graph_of({x}).add(kind, {x}, {}, {{result, x.shape()}})[0];
}

Value float_unary(OpKind kind, Value x) {
  if (!is_float(x.dtype())) {
    shape_error(kind, x.graph, {}, fmt::format("needs a float, found {}", to_string(x.type())));
  }
  return unary(kind, x, x.dtype());
}

// numpy: trailing dimensions align; each pair is equal or one of them is 1.
Shape broadcast_shapes(OpKind kind, Value a, Value b, Site site) {
  const Shape& s = a.shape();
  const Shape& t = b.shape();
  Shape out(std::max(s.size(), t.size()));
  for (size_t i = 0; i < out.size(); ++i) {  // i counts from the end
    const int64_t m = i < s.size() ? s[s.size() - 1 - i] : 1;
    const int64_t n = i < t.size() ? t[t.size() - 1 - i] : 1;
    if (m != n && m != 1 && n != 1) {
      shape_error(kind, &graph_of({a, b}), site,
                  fmt::format("shapes {} and {} do not broadcast: {} against {}", mt::to_string(s),
                              mt::to_string(t), m, n));
    }
    out[out.size() - 1 - i] = m == 1 ? n : m;
  }
  return out;
}

Value binary(OpKind kind, Value a, Value b, Site site, Attributes attributes = {}) {
  Graph& graph = graph_of({a, b});
  if (a.dtype() != b.dtype()) {
    shape_error(kind, &graph, site,
                fmt::format("dtypes differ: {} and {}", to_string(a.type()), to_string(b.type())));
  }
  const Shape shape = broadcast_shapes(kind, a, b, site);
  a = broadcast_to(a, shape, site);
  b = broadcast_to(b, shape, site);
  const DType result = kind == OpKind::kCompare ? DType::kPred : a.dtype();
  return graph.add(kind, {a, b}, std::move(attributes), {{result, shape}}, {}, site)[0];
}

Value scalar_like(Value x, double value) { return full(*x.graph, x.dtype(), {}, value); }

}  // namespace

Value constant(Graph& graph, const Tensor& tensor) {
  return graph.add(OpKind::kConstant, {}, Literal{tensor}, {{tensor.dtype(), tensor.shape()}})[0];
}

Value full(Graph& graph, DType dtype, const Shape& shape, double value) {
  const Value scalar = graph.add(OpKind::kConstant, {}, Splat{value}, {{dtype, {}}})[0];
  return broadcast_to(scalar, shape);
}

Value zeros_like(Value x) { return full(*x.graph, x.dtype(), x.shape(), 0); }

Value iota(Graph& graph, DType dtype, const Shape& shape, int64_t axis) {
  if (axis < 0 || axis >= static_cast<int64_t>(shape.size())) {
    shape_error(OpKind::kIota, &graph, {},
                fmt::format("axis {} is outside shape {}", axis, mt::to_string(shape)));
  }
  return graph.add(OpKind::kIota, {}, Axes{{axis}}, {{dtype, shape}})[0];
}

Value negate(Value x) { return unary(OpKind::kNegate, x, x.dtype()); }
Value exp(Value x) { return float_unary(OpKind::kExp, x); }
Value log(Value x) { return float_unary(OpKind::kLog, x); }
Value log1p(Value x) { return float_unary(OpKind::kLog1p, x); }
Value tanh(Value x) { return float_unary(OpKind::kTanh, x); }
Value rsqrt(Value x) { return float_unary(OpKind::kRsqrt, x); }
Value sqrt(Value x) { return float_unary(OpKind::kSqrt, x); }
Value sin(Value x) { return float_unary(OpKind::kSine, x); }
Value cos(Value x) { return float_unary(OpKind::kCosine, x); }
Value abs(Value x) { return unary(OpKind::kAbs, x, x.dtype()); }
Value sign(Value x) { return unary(OpKind::kSign, x, x.dtype()); }
Value floor(Value x) { return float_unary(OpKind::kFloor, x); }
Value logical_not(Value x) { return unary(OpKind::kNot, x, x.dtype()); }
Value is_finite(Value x) { return unary(OpKind::kIsFinite, x, DType::kPred); }
Value square(Value x) { return x * x; }

Value cast(Value x, DType dtype) {
  return x.dtype() == dtype ? x : unary(OpKind::kConvert, x, dtype);
}

Value bitcast(Value x, DType dtype) {
  if (byte_size(x.dtype()) != byte_size(dtype)) {
    shape_error(OpKind::kBitcast, x.graph, {},
                fmt::format("widths differ: {} to {}", to_string(x.type()), mlir_name(dtype)));
  }
  return unary(OpKind::kBitcast, x, dtype);
}

Value add(Value a, Value b, Site site) { return binary(OpKind::kAdd, a, b, site); }
Value subtract(Value a, Value b, Site site) { return binary(OpKind::kSubtract, a, b, site); }
Value multiply(Value a, Value b, Site site) { return binary(OpKind::kMultiply, a, b, site); }
Value divide(Value a, Value b, Site site) { return binary(OpKind::kDivide, a, b, site); }
Value maximum(Value a, Value b, Site site) { return binary(OpKind::kMaximum, a, b, site); }
Value minimum(Value a, Value b, Site site) { return binary(OpKind::kMinimum, a, b, site); }
Value power(Value a, Value b, Site site) { return binary(OpKind::kPower, a, b, site); }
Value remainder(Value a, Value b, Site site) { return binary(OpKind::kRemainder, a, b, site); }
Value logical_and(Value a, Value b, Site site) { return binary(OpKind::kAnd, a, b, site); }
Value logical_or(Value a, Value b, Site site) { return binary(OpKind::kOr, a, b, site); }
Value logical_xor(Value a, Value b, Site site) { return binary(OpKind::kXor, a, b, site); }
Value shift_left(Value a, Value b, Site site) { return binary(OpKind::kShiftLeft, a, b, site); }
Value shift_right_logical(Value a, Value b, Site site) {
  return binary(OpKind::kShiftRightLogical, a, b, site);
}
Value compare(Value a, Direction direction, Value b, Site site) {
  return binary(OpKind::kCompare, a, b, site, direction);
}

Value select(Value condition, Value on_true, Value on_false, Site site) {
  Graph& graph = graph_of({condition, on_true, on_false});
  if (condition.dtype() != DType::kPred || on_true.dtype() != on_false.dtype()) {
    shape_error(OpKind::kSelect, &graph, site,
                fmt::format("needs a bool and two of one dtype, found {}, {}, {}",
                            to_string(condition.type()), to_string(on_true.type()),
                            to_string(on_false.type())));
  }
  const Shape branches = broadcast_shapes(OpKind::kSelect, on_true, on_false, site);
  on_true = broadcast_to(on_true, branches, site);
  const Shape shape = broadcast_shapes(OpKind::kSelect, condition, on_true, site);
  return graph.add(OpKind::kSelect,
                   {broadcast_to(condition, shape, site), broadcast_to(on_true, shape, site),
                    broadcast_to(on_false, shape, site)},
                   {}, {{on_true.dtype(), shape}}, {}, site)[0];
}

Value operator+(Value a, double b) { return a + scalar_like(a, b); }
Value operator-(Value a, double b) { return a - scalar_like(a, b); }
Value operator*(Value a, double b) { return a * scalar_like(a, b); }
Value operator/(Value a, double b) { return a / scalar_like(a, b); }
Value operator+(double a, Value b) { return scalar_like(b, a) + b; }
Value operator-(double a, Value b) { return scalar_like(b, a) - b; }
Value operator*(double a, Value b) { return scalar_like(b, a) * b; }
Value operator/(double a, Value b) { return scalar_like(b, a) / b; }

}  // namespace mt::ir
