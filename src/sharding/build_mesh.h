// The mesh that ici_* (within a slice) and dcn_* (between slices) keys ask for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sharding/mesh.h"

namespace mt::sharding {

struct AxisParallelism {
  std::string name;      // a mesh axis
  int64_t ici = 1;       // -1 = what is left
  int64_t dcn = 1;       // -1 = what is left
  std::string key = {};  // what the user calls it ("fsdp", or "pipeline" for stage); empty = name
};

struct Parallelism {
  std::vector<AxisParallelism> axes;  // in mesh order, outermost first
  int64_t num_slices = -1;            // -1 = the product of dcn sizes (an open one counts as 1)
};

int64_t slice_count(const Parallelism& parallelism);

// Devices to make on a platform where their number is free (CPU): the product of all sizes, an open
// one (-1) counted as 1.
int64_t required_devices(const Parallelism& parallelism);

// The mesh over `devices` devices, all axes present, sizes ici * dcn. Throws kConfig naming axes
// and numbers if a size is 0 or below -1, two of a group are -1, or the products don't fit.
Mesh build_mesh(const Parallelism& parallelism, int64_t devices);

}  // namespace mt::sharding
