// Leaves and elementwise operations.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "ir/ops.h"

namespace mt::ir {
namespace {

Value unary(OpKind kind, Value x, DType result, Site site) {
  return graph_of({x}).add(kind, {x}, {}, {{result, x.shape()}}, {}, site)[0];
}

Value float_unary(OpKind kind, Value x, Site site) {
  if (!is_float(x.dtype())) {
    shape_error(kind, x.graph, site, fmt::format("needs a float, found {}", to_string(x.type())));
  }
  return unary(kind, x, x.dtype(), site);
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

Value scalar_like(Value x, double value, Site site) {
  return full(*x.graph, x.dtype(), {}, value, site);
}

}  // namespace

Value constant(Graph& graph, const Tensor& tensor, Site site) {
  return graph.add(OpKind::kConstant, {}, Literal{tensor}, {{tensor.dtype(), tensor.shape()}}, {},
                   site)[0];
}

Value full(Graph& graph, DType dtype, const Shape& shape, double value, Site site) {
  const Value scalar = graph.add(OpKind::kConstant, {}, Splat{value}, {{dtype, {}}}, {}, site)[0];
  return broadcast_to(scalar, shape, site);
}

Value zeros_like(Value x, Site site) { return full(*x.graph, x.dtype(), x.shape(), 0, site); }

Value iota(Graph& graph, DType dtype, const Shape& shape, int64_t axis, Site site) {
  if (axis < 0 || axis >= static_cast<int64_t>(shape.size())) {
    shape_error(OpKind::kIota, &graph, site,
                fmt::format("axis {} is outside shape {}", axis, mt::to_string(shape)));
  }
  return graph.add(OpKind::kIota, {}, Axes{{axis}}, {{dtype, shape}}, {}, site)[0];
}

Value negate(Value x, Site site) { return unary(OpKind::kNegate, x, x.dtype(), site); }
Value exp(Value x, Site site) { return float_unary(OpKind::kExp, x, site); }
Value log(Value x, Site site) { return float_unary(OpKind::kLog, x, site); }
Value log1p(Value x, Site site) { return float_unary(OpKind::kLog1p, x, site); }
Value tanh(Value x, Site site) { return float_unary(OpKind::kTanh, x, site); }
Value rsqrt(Value x, Site site) { return float_unary(OpKind::kRsqrt, x, site); }
Value sqrt(Value x, Site site) { return float_unary(OpKind::kSqrt, x, site); }
Value sin(Value x, Site site) { return float_unary(OpKind::kSine, x, site); }
Value cos(Value x, Site site) { return float_unary(OpKind::kCosine, x, site); }
Value abs(Value x, Site site) { return unary(OpKind::kAbs, x, x.dtype(), site); }
Value sign(Value x, Site site) { return unary(OpKind::kSign, x, x.dtype(), site); }
Value floor(Value x, Site site) { return float_unary(OpKind::kFloor, x, site); }
Value logical_not(Value x, Site site) { return unary(OpKind::kNot, x, x.dtype(), site); }
Value is_finite(Value x, Site site) { return unary(OpKind::kIsFinite, x, DType::kPred, site); }
Value square(Value x, Site site) { return multiply(x, x, site); }

Value cast(Value x, DType dtype, Site site) {
  return x.dtype() == dtype ? x : unary(OpKind::kConvert, x, dtype, site);
}

Value bitcast(Value x, DType dtype, Site site) {
  if (byte_size(x.dtype()) != byte_size(dtype)) {
    shape_error(OpKind::kBitcast, x.graph, site,
                fmt::format("widths differ: {} to {}", to_string(x.type()), mlir_name(dtype)));
  }
  return unary(OpKind::kBitcast, x, dtype, site);
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

Value operator+(Located a, double b) { return add(a.value, scalar_like(a.value, b, a.at), a.at); }
Value operator-(Located a, double b) {
  return subtract(a.value, scalar_like(a.value, b, a.at), a.at);
}
Value operator*(Located a, double b) {
  return multiply(a.value, scalar_like(a.value, b, a.at), a.at);
}
Value operator/(Located a, double b) {
  return divide(a.value, scalar_like(a.value, b, a.at), a.at);
}
Value operator+(double a, Located b) { return add(scalar_like(b.value, a, b.at), b.value, b.at); }
Value operator-(double a, Located b) {
  return subtract(scalar_like(b.value, a, b.at), b.value, b.at);
}
Value operator*(double a, Located b) {
  return multiply(scalar_like(b.value, a, b.at), b.value, b.at);
}
Value operator/(double a, Located b) {
  return divide(scalar_like(b.value, a, b.at), b.value, b.at);
}

}  // namespace mt::ir
