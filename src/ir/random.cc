#include "ir/random.h"

#include <array>
#include <cmath>

#include "base/error.h"

namespace mt::ir {
namespace {

constexpr uint32_t kParity = 0x1BD11BDA;  // the key schedule's third word
constexpr std::array<std::array<int, 4>, 2> kRotations{{{13, 15, 26, 6}, {17, 29, 16, 24}}};

Value u32(Graph& graph, uint32_t value) {
  return full(graph, DType::kU32, {}, static_cast<double>(value));
}

Value rotate_left(Value x, int bits) {
  Graph& g = *x.graph;
  return logical_or(shift_left(x, u32(g, static_cast<uint32_t>(bits))),
                    shift_right_logical(x, u32(g, static_cast<uint32_t>(32 - bits))));
}

// Word i of each key, with `rank` dimensions of size 1 behind the batch's.
Value word(Value key, int64_t i, size_t rank = 0) {
  Shape shape(key.shape().begin(), key.shape().end() - 1);
  shape.insert(shape.end(), rank, 1);
  return reshape(slice_axis(key, -1, i, i + 1), shape);
}

// Twenty rounds in five groups of four, a key injection after each.
std::pair<Value, Value> threefry(Value k0, Value k1, Value x0, Value x1) {
  Graph& g = graph_of({k0, x0, x1});
  const std::array<Value, 3> keys{k0, k1, logical_xor(logical_xor(k0, k1), u32(g, kParity))};
  x0 = x0 + keys[0];
  x1 = x1 + keys[1];
  for (uint32_t group = 0; group < 5; ++group) {
    for (const int bits : kRotations[group % 2]) {
      x0 = x0 + x1;
      x1 = logical_xor(rotate_left(x1, bits), x0);
    }
    x0 = x0 + keys[(group + 1) % 3];
    x1 = x1 + keys[(group + 2) % 3] + u32(g, group + 1);
  }
  return {x0, x1};
}

// Row-major index of each element; shapes beyond 2^32 elements are refused.
Value linear_index(Graph& graph, const Shape& shape) {
  if (element_count(shape) > (int64_t{1} << 32)) {
    throw fail(ErrorKind::kLimit, "random array {} has more than 2^32 elements",
               mt::to_string(shape));
  }
  Value index = full(graph, DType::kU32, shape, 0);
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    const Value along = iota(graph, DType::kU32, shape, static_cast<int64_t>(axis));
    index = index + along * static_cast<double>(stride);
    stride *= shape[axis];
  }
  return index;
}

Value polynomial(Value x, const std::array<double, 9>& coefficients) {
  Value p = full(*x.graph, x.dtype(), x.shape(), coefficients[0]);
  for (size_t i = 1; i < coefficients.size(); ++i) p = p * x + coefficients[i];
  return p;
}

}  // namespace

Value key_from_seed(Graph& graph, uint64_t seed) {
  return constant(graph, Tensor::of<uint32_t>(
                             DType::kU32, {2},
                             {static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)}));
}

Value fold_in(Value key, uint32_t data) { return fold_in(key, u32(*key.graph, data)); }

Value fold_in(Value key, Value data) {
  Graph& g = graph_of({key, data});
  const Value low = data.dtype() == DType::kU32 ? data : cast(data, DType::kU32);
  const auto [a, b] = threefry(word(key, 0), word(key, 1), u32(g, 0), low);
  return concatenate({expand_dims(a, -1), expand_dims(b, -1)}, -1);
}

Value random_bits(Value key, const Shape& shape) {
  const size_t rank = shape.size();
  const auto [a, b] =
      threefry(word(key, 0, rank), word(key, 1, rank), full(*key.graph, DType::kU32, shape, 0),
               linear_index(*key.graph, shape));
  return logical_xor(a, b);
}

Value random_uniform(Value key, const Shape& shape, double low, double high) {
  Graph& g = *key.graph;
  // 23 random bits as the mantissa of a float in [1, 2).
  const Value mantissa = shift_right_logical(random_bits(key, shape), u32(g, 9));
  const Value one_to_two = bitcast(logical_or(mantissa, u32(g, 0x3F800000)), DType::kF32);
  const auto lo = static_cast<double>(static_cast<float>(low));
  const Value scaled = (one_to_two - 1.0) * (high - lo) + lo;
  return maximum(scaled, full(g, DType::kF32, {}, lo));
}

Value erf_inv(Value x) {
  const Value w = -log1p(-(x * x));
  const Value central =
      polynomial(w - 2.5, {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06,
                           0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941});
  const Value tail = polynomial(
      sqrt(w) - 3.0, {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                      -0.0076224613, 0.00943887047, 1.00167406, 2.83297682});
  return x * select(compare(w, Direction::kLt, full(*x.graph, x.dtype(), {}, 5)), central, tail);
}

Value random_normal(Value key, const Shape& shape) {
  const double lowest = std::nextafter(-1.0F, 0.0F);
  return erf_inv(random_uniform(key, shape, lowest, 1)) * std::sqrt(2.0);
}

Value random_truncated_normal(Value key, const Shape& shape) {
  const double edge = std::erf(2 / std::sqrt(2.0));
  const Value x = erf_inv(random_uniform(key, shape, -edge, edge)) * std::sqrt(2.0);
  Graph& g = *key.graph;
  return maximum(minimum(x, full(g, DType::kF32, {}, 2)), full(g, DType::kF32, {}, -2));
}

Value random_integers(Value key, const Shape& shape, uint32_t bound) {
  const Value bits = random_bits(key, shape);
  return cast(remainder(bits, u32(*key.graph, bound)), DType::kS32);
}

Value random_bernoulli(Value key, const Shape& shape, double probability) {
  const Value u = random_uniform(key, shape, 0, 1);
  return compare(u, Direction::kLt, full(*key.graph, DType::kF32, {}, probability));
}

}  // namespace mt::ir
