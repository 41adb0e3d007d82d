#include "sharding/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace mt::sharding {
namespace {

// The device's coordinate along one mesh axis.
int64_t coordinate(const Mesh& mesh, const std::string& name, int64_t device) {
  for (size_t i = mesh.axes.size(); i-- > 0;) {
    if (mesh.axes[i].name == name) return device % mesh.axes[i].size;
    device /= mesh.axes[i].size;
  }
  return 0;
}

}  // namespace

int64_t Mesh::device_count() const {
  int64_t n = 1;
  for (const MeshAxis& axis : axes) n *= axis.size;
  return n;
}

int64_t Mesh::axis_size(std::string_view name) const {
  for (const MeshAxis& axis : axes) {
    if (axis.name == name) return axis.size;
  }
  return 1;
}

bool PartitionSpec::is_replicated() const {
  for (const auto& dim : dims) {
    if (!dim.empty()) return false;
  }
  return true;
}

std::string to_string(const PartitionSpec& spec) {
  std::vector<std::string> parts;
  for (const auto& dim : spec.dims) {
    if (dim.empty()) {
      parts.emplace_back("-");
    } else if (dim.size() == 1) {
      parts.push_back(dim[0]);
    } else {
      parts.push_back(fmt::format("({})", fmt::join(dim, ", ")));
    }
  }
  return fmt::format("P({})", fmt::join(parts, ", "));
}

int64_t pieces(const Mesh& mesh, const PartitionSpec& spec, size_t dim) {
  int64_t n = 1;
  if (dim < spec.dims.size()) {
    for (const std::string& axis : spec.dims[dim]) n *= mesh.axis_size(axis);
  }
  return n;
}

Shape shard_shape(const Mesh& mesh, const PartitionSpec& spec, const Shape& shape) {
  Shape out = shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t n = pieces(mesh, spec, i);
    if (shape[i] % n != 0) {
      throw fail(
          ErrorKind::kConfig,
          "dimension {} of shape {} (size {}) is not divisible by the {} devices of mesh axis {}",
          i, mt::to_string(shape), shape[i], n, fmt::join(spec.dims[i], "*"));
    }
    out[i] = shape[i] / n;
  }
  return out;
}

std::vector<int64_t> shard_start(const Mesh& mesh, const PartitionSpec& spec, const Shape& shape,
                                 int64_t device) {
  const Shape shard = shard_shape(mesh, spec, shape);
  std::vector<int64_t> start(shape.size(), 0);
  for (size_t i = 0; i < shape.size() && i < spec.dims.size(); ++i) {
    int64_t index = 0;
    for (const std::string& axis : spec.dims[i]) {
      index = index * mesh.axis_size(axis) + coordinate(mesh, axis, device);
    }
    start[i] = index * shard[i];
  }
  return start;
}

}  // namespace mt::sharding
