// The gradient rule of every op: one row a kind, in the order of OpKind. A kind without a gradient
// says why; a kind that is missing does not compile.
#pragma once

#include <array>
#include <vector>

#include "ir/ops.h"

namespace mt::autodiff {

struct RuleInput {
  ir::Graph& graph;
  size_t node_index;
  std::vector<ir::Value> operands, results;
  std::vector<ir::Value> cotangents;  // one a result; null is zero, never all null
  std::vector<bool> wanted;           // operands whose gradient somebody needs

  const ir::Node& node() const { return graph.nodes()[node_index]; }
};

// One gradient an operand; null where it is zero or not wanted.
using Rule = std::vector<ir::Value> (*)(const RuleInput&);

struct RuleRow {
  ir::OpKind kind;
  Rule rule;           // null: no gradient flows
  const char* reason;  // why not; "" for kinds with a rule
  bool is_error;       // asking for this gradient is a mistake of the caller
};

extern const std::array<RuleRow, ir::kOpCount> kRules;

// Rules of the kinds with regions (structure.cc).
std::vector<ir::Value> scan_rule(const RuleInput& in);
std::vector<ir::Value> remat_rule(const RuleInput& in);
std::vector<ir::Value> custom_vjp_rule(const RuleInput& in);

}  // namespace mt::autodiff
