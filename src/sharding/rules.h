// Logical axis rules: which mesh axes split a dimension of a given logical name. The rules are data
// (logical_axis_rules in configs/base.yml).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sharding/mesh.h"

namespace mt::sharding {

struct AxisRule {
  std::string logical;
  std::vector<std::string> mesh_axes;  // major to minor; empty = replicated
  bool operator==(const AxisRule&) const = default;
};

// One logical name a dimension; "" = a dimension that has none and stays whole.
// Walks the rules in order: a rule fits a dimension of its name that has no rule yet if none of the
// rule's mesh axes splits another dimension; later rules of a name are fallbacks; no rule = whole.
// Which rule fits depends on the names only; of the result, axes that the mesh lacks or that have
// size 1 are dropped. A name may occur once: a second time throws kConfig.
PartitionSpec resolve(const std::vector<AxisRule>& rules, const Mesh& mesh,
                      const std::vector<std::string>& logical_axes);

// `base` with every name that `changes` mentions replaced by its rules there (at the place of the
// name's first rule; new names come last).
std::vector<AxisRule> replace_rules(std::vector<AxisRule> base,
                                    const std::vector<AxisRule>& changes);

}  // namespace mt::sharding
