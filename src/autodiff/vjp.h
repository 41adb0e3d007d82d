// Reverse-mode differentiation over a graph: appends the backward pass to the same graph.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace mt::autodiff {

// Gradients of sum(outputs * cotangents) with respect to `wrt`, one a value, zeros where nothing
// depends on it. `wrt` need not be parameters. A null cotangent is zero. All of `wrt` must be
// values of the innermost graph among the outputs; Graph::import() makes one of an outer value.
// Scan and remat nodes on the way gain results (their residuals).
// Throws kShape where an op that has no rule (while, custom_call) would be differentiated.
std::vector<ir::Value> vjp(const std::vector<ir::Value>& outputs,
                           const std::vector<ir::Value>& cotangents,
                           const std::vector<ir::Value>& wrt);

// Gradients of a scalar.
std::vector<ir::Value> grad(ir::Value scalar, const std::vector<ir::Value>& wrt);

// As vjp, but only nodes from `first_node` on are swept, and a gradient that is zero stays null.
std::vector<ir::Value> sweep(ir::Graph& graph, size_t first_node,
                             const std::vector<ir::Value>& outputs,
                             const std::vector<ir::Value>& cotangents,
                             const std::vector<ir::Value>& wrt);

// a + b where either may be null (zero).
ir::Value accumulate(ir::Value a, ir::Value b);

}  // namespace mt::autodiff
