// Prints a graph as a StableHLO module with Shardy shardings. One writer prints every op in MLIR's
// generic form; the same graph always gives the same text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "sharding/mesh.h"

namespace mt::ir {

struct ProgramSpec {
  std::string name = "main";  // the module's name: jit_train_step
  sharding::Mesh mesh;        // one device if no axis is larger than 1
  std::vector<std::optional<sharding::PartitionSpec>> arguments;  // empty: nothing is said
  std::vector<std::optional<sharding::PartitionSpec>> results;
  std::vector<int64_t> donated;  // a argument: the result that takes its memory, or -1; or empty
  bool locations = true;         // module path and source line of each op
};

// `graph` must come from optimise() (no remat, custom_vjp or name nodes).
std::string to_stablehlo(const Graph& graph, const ProgramSpec& spec);

}  // namespace mt::ir
