// Passes over a finished graph (after autodiff).
#pragma once

#include <memory>
#include <string>

#include "ir/graph.h"

namespace mt::ir {

// A new graph with the same parameters and outputs: remat, custom_vjp and name nodes are inlined,
// equal pure nodes are merged (CSE), nodes that no output needs are dropped (DCE), in regions too.
std::shared_ptr<Graph> optimise(const Graph& graph);

// One line a node: "%7 = add %3, %5 : f32[2, 3]  # decoder/mlp"; regions are indented.
std::string dump(const Graph& graph);

// How many nodes of a kind there are, regions included.
int64_t count(const Graph& graph, OpKind kind);

}  // namespace mt::ir
