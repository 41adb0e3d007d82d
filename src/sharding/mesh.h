// The device mesh and partition specs. A device's id is its row-major position in the mesh.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"

namespace mt::sharding {

struct MeshAxis {
  std::string name;  // MaxText's: data, stage, fsdp, ...
  int64_t size = 1;
};

struct Mesh {
  std::vector<MeshAxis> axes;  // outermost first; axes of size 1 may be present

  int64_t device_count() const;
  int64_t axis_size(std::string_view name) const;  // 1 if the mesh has no such axis
};

// For each dimension the mesh axes that split it, major to minor; an empty list is "whole".
struct PartitionSpec {
  std::vector<std::vector<std::string>> dims;
  bool operator==(const PartitionSpec&) const = default;
  bool is_replicated() const;
};

std::string to_string(const PartitionSpec& spec);  // "P(fsdp, -, (tensor, data))"

// How many pieces dimension `dim` is cut into.
int64_t pieces(const Mesh& mesh, const PartitionSpec& spec, size_t dim);

// The shape one device holds. Throws kConfig naming dimension and axes if a size doesn't divide.
Shape shard_shape(const Mesh& mesh, const PartitionSpec& spec, const Shape& shape);

// Where device `device`'s shard starts in the whole array.
std::vector<int64_t> shard_start(const Mesh& mesh, const PartitionSpec& spec, const Shape& shape,
                                 int64_t device);

}  // namespace mt::sharding
