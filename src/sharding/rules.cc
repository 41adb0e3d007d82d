#include "sharding/rules.h"

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace mt::sharding {
namespace {

using Assignment = std::vector<std::optional<std::vector<std::string>>>;

bool in_use(const Assignment& assigned, const std::string& mesh_axis) {
  return std::any_of(assigned.begin(), assigned.end(), [&](const auto& dim) {
    return dim && std::find(dim->begin(), dim->end(), mesh_axis) != dim->end();
  });
}

void check_names(const std::vector<std::string>& logical_axes) {
  for (size_t i = 0; i < logical_axes.size(); ++i) {
    const std::string& name = logical_axes[i];
    if (!name.empty() &&
        std::find(logical_axes.begin(), logical_axes.begin() + static_cast<std::ptrdiff_t>(i),
                  name) != logical_axes.begin() + static_cast<std::ptrdiff_t>(i)) {
      throw fail(ErrorKind::kConfig, "logical axis {} names two dimensions of one array", name);
    }
  }
}

}  // namespace

PartitionSpec resolve(const std::vector<AxisRule>& rules, const Mesh& mesh,
                      const std::vector<std::string>& logical_axes) {
  check_names(logical_axes);
  Assignment assigned(logical_axes.size());
  for (const AxisRule& rule : rules) {
    if (rule.logical.empty()) continue;
    const auto it = std::find(logical_axes.begin(), logical_axes.end(), rule.logical);
    if (it == logical_axes.end()) continue;
    auto& dim = assigned[static_cast<size_t>(it - logical_axes.begin())];
    if (dim) continue;
    const bool free = std::none_of(rule.mesh_axes.begin(), rule.mesh_axes.end(),
                                   [&](const std::string& axis) { return in_use(assigned, axis); });
    if (free) dim = rule.mesh_axes;
  }

  PartitionSpec spec;
  for (const auto& dim : assigned) {
    auto& out = spec.dims.emplace_back();
    if (!dim) continue;
    std::copy_if(dim->begin(), dim->end(), std::back_inserter(out),
                 [&](const std::string& axis) { return mesh.axis_size(axis) > 1; });
  }
  return spec;
}

std::vector<AxisRule> replace_rules(std::vector<AxisRule> base,
                                    const std::vector<AxisRule>& changes) {
  const auto changed = [&](const std::string& name) {
    return std::any_of(changes.begin(), changes.end(),
                       [&](const AxisRule& rule) { return rule.logical == name; });
  };
  std::vector<AxisRule> out;
  std::vector<std::string> placed;
  const auto place = [&](const std::string& name) {
    if (std::find(placed.begin(), placed.end(), name) != placed.end()) return;
    placed.push_back(name);
    for (const AxisRule& rule : changes) {
      if (rule.logical == name) out.push_back(rule);
    }
  };
  for (AxisRule& rule : base) {
    if (changed(rule.logical)) {
      place(rule.logical);
    } else {
      out.push_back(std::move(rule));
    }
  }
  for (const AxisRule& rule : changes) place(rule.logical);
  return out;
}

}  // namespace mt::sharding
