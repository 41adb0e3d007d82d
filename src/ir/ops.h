// The operations, as functions that read like jnp. Shapes and dtypes are checked at the call: a
// mistake throws kShape with the op, the sizes, the module path and the caller's line.
// Elementwise functions broadcast as numpy does (trailing dimensions align); dtypes never promote.
// Semantics are StableHLO's unless said otherwise. Axes may be negative (from the end).
#pragma once

#include <functional>
#include <utility>

#include "ir/graph.h"

namespace mt::ir {

#define MT_SITE Site site = {__builtin_FILE(), __builtin_LINE()}

// --- leaves
Value constant(Graph& graph, const Tensor& tensor, MT_SITE);
Value full(Graph& graph, DType dtype, const Shape& shape, double value, MT_SITE);
Value zeros_like(Value x, MT_SITE);
// Counts along axis.
Value iota(Graph& graph, DType dtype, const Shape& shape, int64_t axis, MT_SITE);

// --- elementwise
Value negate(Value x, MT_SITE);
Value exp(Value x, MT_SITE);
Value log(Value x, MT_SITE);
Value log1p(Value x, MT_SITE);
Value tanh(Value x, MT_SITE);
Value rsqrt(Value x, MT_SITE);
Value sqrt(Value x, MT_SITE);
Value sin(Value x, MT_SITE);
Value cos(Value x, MT_SITE);
Value abs(Value x, MT_SITE);
Value sign(Value x, MT_SITE);
Value floor(Value x, MT_SITE);
Value logical_not(Value x, MT_SITE);
Value is_finite(Value x, MT_SITE);             // pred
Value cast(Value x, DType dtype, MT_SITE);     // no node if the dtype is the same
Value bitcast(Value x, DType dtype, MT_SITE);  // same width
Value add(Value a, Value b, MT_SITE);
Value subtract(Value a, Value b, MT_SITE);
Value multiply(Value a, Value b, MT_SITE);
Value divide(Value a, Value b, MT_SITE);
Value maximum(Value a, Value b, MT_SITE);
Value minimum(Value a, Value b, MT_SITE);
Value power(Value a, Value b, MT_SITE);
Value remainder(Value a, Value b, MT_SITE);
Value logical_and(Value a, Value b, MT_SITE);  // bitwise on integers
Value logical_or(Value a, Value b, MT_SITE);
Value logical_xor(Value a, Value b, MT_SITE);
Value shift_left(Value a, Value b, MT_SITE);
Value shift_right_logical(Value a, Value b, MT_SITE);
Value compare(Value a, Direction direction, Value b, MT_SITE);  // pred
Value select(Value condition, Value on_true, Value on_false, MT_SITE);
Value square(Value x, MT_SITE);

// An operator's first operand: converting to it at the call remembers the caller's line.
struct Located {
  Located(Value v, MT_SITE) : value(v), at(site) {}  // NOLINT: implicit on purpose
  Value value;
  Site at;
};
inline Value operator+(Located a, Value b) { return add(a.value, b, a.at); }
inline Value operator-(Located a, Value b) { return subtract(a.value, b, a.at); }
inline Value operator*(Located a, Value b) { return multiply(a.value, b, a.at); }
inline Value operator/(Located a, Value b) { return divide(a.value, b, a.at); }
inline Value operator-(Located a) { return negate(a.value, a.at); }
Value operator+(Located a, double b);  // the number takes the value's dtype
Value operator-(Located a, double b);
Value operator*(Located a, double b);
Value operator/(Located a, double b);
Value operator+(double a, Located b);
Value operator-(double a, Located b);
Value operator*(double a, Located b);
Value operator/(double a, Located b);

// --- shape
// Operand axis i becomes result axis map[i]; a size-1 operand axis may widen.
Value broadcast_in_dim(Value x, const Shape& shape, std::vector<int64_t> map, MT_SITE);
Value broadcast_to(Value x, const Shape& shape, MT_SITE);  // numpy's rule
Value reshape(Value x, const Shape& shape, MT_SITE);       // one size may be -1
Value expand_dims(Value x, int64_t axis, MT_SITE);
Value squeeze(Value x, int64_t axis, MT_SITE);
Value transpose(Value x, std::vector<int64_t> permutation, MT_SITE);
Value slice(Value x, std::vector<int64_t> start, std::vector<int64_t> limit,
            std::vector<int64_t> stride = {}, MT_SITE);
Value slice_axis(Value x, int64_t axis, int64_t start, int64_t limit, MT_SITE);
Value pad(Value x, double value, std::vector<int64_t> low, std::vector<int64_t> high,
          std::vector<int64_t> interior = {}, MT_SITE);
Value concatenate(const std::vector<Value>& parts, int64_t axis, MT_SITE);
// Scalar s32 starts, one an axis; clamped so that the slice stays inside.
Value dynamic_slice(Value x, const std::vector<Value>& starts, const Shape& sizes, MT_SITE);
Value dynamic_update_slice(Value x, Value update, const std::vector<Value>& starts, MT_SITE);
// Rows of a matrix [V, ...] by s32 indices of any shape; indices are clamped into [0, V).
Value take_rows(Value table, Value indices, MT_SITE);
// table with rows of updates added at indices (out of range: dropped).
Value scatter_add_rows(Value table, Value indices, Value updates, MT_SITE);

// --- contraction and reduction
// Result axes: batch, lhs free, rhs free. `result` is the accumulation and result dtype.
Value dot_general(Value lhs, Value rhs, DotDims dims, DType result, MT_SITE);
// einsum over two operands: "bld,dnh->blnh". Letters in both inputs and the output are batch.
Value einsum(std::string_view formula, Value lhs, Value rhs, DType result, MT_SITE);
Value einsum(std::string_view formula, Value lhs, Value rhs, MT_SITE);  // result dtype = lhs's
Value reduce_sum(Value x, std::vector<int64_t> axes, bool keep = false, MT_SITE);
Value reduce_max(Value x, std::vector<int64_t> axes, bool keep = false, MT_SITE);
Value reduce_min(Value x, std::vector<int64_t> axes, bool keep = false, MT_SITE);
Value mean(Value x, std::vector<int64_t> axes, bool keep = false, MT_SITE);
Value sum_all(Value x, MT_SITE);               // scalar
Value argmax(Value x, int64_t axis, MT_SITE);  // s32; the first of equals

// --- structure
// A tag that remat policies refer to.
Value checkpoint_name(Value x, std::string tag, MT_SITE);
std::vector<Value> barrier(const std::vector<Value>& values, MT_SITE);
Value sharding_constraint(Value x, const sharding::PartitionSpec& spec, MT_SITE);
std::vector<Value> custom_call(Graph& graph, CustomCallInfo info,
                               const std::vector<Value>& operands, std::vector<Type> results,
                               MT_SITE);

using Body = std::function<std::vector<Value>(const std::vector<Value>&)>;

// while condition(state) state = body(state); the condition returns one pred scalar.
std::vector<Value> while_loop(const std::vector<Value>& init, const Body& condition,
                              const Body& body, MT_SITE);

// body({carry..., x slices...}) -> {carry..., y slices...}; `x_axes[i]` is scanned in xs[i] and
// removed from the slice, `y_axes[i]` is where ys[i] is stacked. Returns {carry..., ys...}.
// Outer values that the body uses are captured. Differentiable.
struct ScanOptions {
  int64_t length = 0;
  std::vector<int64_t> x_axes, y_axes;  // empty: all 0
  bool reverse = false;
};
std::vector<Value> scan(const std::vector<Value>& init, const std::vector<Value>& xs,
                        const ScanOptions& options, const Body& body, MT_SITE);

// Runs body(arguments) now; in the backward pass it is run again, except for what carries a tag in
// `saved`. Work on captured values alone stays outside.
std::vector<Value> remat(const std::vector<Value>& arguments, std::vector<std::string> saved,
                         const Body& body, MT_SITE);

// body(arguments) with a gradient rule of its own. The body must not capture what needs a gradient.
std::vector<Value> custom_vjp(std::string label, const std::vector<Value>& arguments,
                              const Body& body, CustomVjpRule rule, MT_SITE);

// body sees each device's shard along `manual_axes`. Results have the given whole types and specs.
std::vector<Value> manual_computation(const std::vector<Value>& arguments, ManualInfo info,
                                      const sharding::Mesh& mesh, std::vector<Type> results,
                                      const Body& body, MT_SITE);
// Inside a manual computation: the sum over mesh axes.
Value all_reduce(Value x, std::vector<std::string> axes, MT_SITE);

}  // namespace mt::ir
