// The mesh and the logical axis rules that a traced program is laid out by.
#pragma once

#include <string_view>
#include <vector>

#include "ir/ops.h"
#include "ir/products.h"
#include "sharding/rules.h"

namespace mt::nnx {

struct Partitioner {
  sharding::Mesh mesh;
  std::vector<sharding::AxisRule> rules;
  ir::Products narrow_products = ir::Products::kAsTraced;  // as the platform needs them

  sharding::PartitionSpec spec(const std::vector<std::string>& axes) const {
    return sharding::resolve(rules, mesh, axes);
  }
  bool is_trivial() const { return mesh.device_count() == 1; }
  // MaxText's with_logical_constraint: nothing on one device.
  ir::Value constrain(ir::Value x, std::initializer_list<std::string_view> axes) const {
    if (is_trivial()) return x;
    return ir::sharding_constraint(x, spec(std::vector<std::string>(axes.begin(), axes.end())));
  }
};

}  // namespace mt::nnx
