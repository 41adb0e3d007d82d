// Prints a graph as a StableHLO module with Shardy shardings. One writer prints every op in MLIR's
// generic form; the same graph always gives the same text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "sharding/mesh.h"

namespace mt::ir {

// How products of bfloat16 or float16 arrays are printed. XLA:CPU has a fast bfloat16 product only
// on processors with AVX512-BF16, and there only for rows times columns: what else it is given may
// run 30 times slower than the same product of operands converted to float32.
enum class Products {
  kAsTraced,
  kWide,           // all as float32 products of converted operands
  kWideUnlessRows  // bfloat16 ones that contract the lhs's last dimensions with the rhs's first or
                   // last stay
};

struct ProgramSpec {
  std::string name = "main";  // the module's name: jit_train_step
  sharding::Mesh mesh;        // one device if no axis is larger than 1
  std::vector<std::optional<sharding::PartitionSpec>> arguments;  // empty: nothing is said
  std::vector<std::optional<sharding::PartitionSpec>> results;
  std::vector<int64_t> donated;  // a argument: the result that takes its memory, or -1; or empty
  Products narrow_products = Products::kAsTraced;
  bool locations = true;  // module path and source line of each op
};

// `graph` must come from optimise() (no remat, custom_vjp or name nodes).
std::string to_stablehlo(const Graph& graph, const ProgramSpec& spec);

}  // namespace mt::ir
