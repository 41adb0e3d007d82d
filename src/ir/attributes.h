// What an op carries besides its operands. One alternative a family; describe() prints any of them,
// and that text also serves CSE as the key.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/tensor.h"
#include "sharding/mesh.h"

namespace mt::ir {

class Graph;
struct Value;

struct Literal {
  Tensor tensor;
};  // constant with its bytes
struct Splat {
  double value = 0;
};  // constant, every element the same
struct Axes {
  std::vector<int64_t> axes;
};  // iota {dim}, broadcast map, permutation, reduced axes
enum class Direction : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe };
struct SliceDims {
  std::vector<int64_t> start, limit, stride;
};
struct PadDims {
  std::vector<int64_t> low, high, interior;
};  // negative low/high crops
struct DotDims {
  std::vector<int64_t> lhs_batch, rhs_batch, lhs_contract, rhs_contract;
};
struct Label {
  std::string text;
};  // parameter name, tag
struct Spec {
  sharding::PartitionSpec spec;
};
struct CustomCallInfo {
  std::string target;
  std::map<std::string, int64_t> integers;  // backend_config of a typed FFI call
  std::map<std::string, double> floats;
  bool has_side_effect = false;
  // result -> operand whose memory it takes over: what the call doesn't write stays as it was.
  std::map<int64_t, int64_t> in_place;
};
struct ScanInfo {
  int64_t length = 0;
  int64_t carries = 0;                  // operands: carries, then xs, then constants
  std::vector<int64_t> x_axes, y_axes;  // the scanned axis of each x and each stacked y
  bool reverse = false;                 // from the last slice to the first
};
struct RematInfo {
  std::vector<std::string> saved;  // tags whose values are kept instead of recomputed
};
// Backward of a custom-gradient call: (operands, results, cotangents) -> operand cotangents.
// A null Value among the cotangents is a zero; a null Value returned means no gradient.
using CustomVjpRule = std::function<std::vector<Value>(const std::vector<Value>& operands,
                                                       const std::vector<Value>& results,
                                                       const std::vector<Value>& cotangents)>;
struct CustomVjpInfo {
  std::string label;
  CustomVjpRule rule;
};
struct ManualInfo {
  std::vector<sharding::PartitionSpec> in, out;
  std::vector<std::string> manual_axes;
};
struct AllReduceInfo {
  std::vector<std::string> axes;
};  // sum over these mesh axes

using Attributes = std::variant<std::monostate, Literal, Splat, Axes, Direction, SliceDims, PadDims,
                                DotDims, Label, Spec, CustomCallInfo, ScanInfo, RematInfo,
                                CustomVjpInfo, ManualInfo, AllReduceInfo>;

std::string describe(const Attributes& attributes);

}  // namespace mt::ir
