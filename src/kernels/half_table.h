// Every 16-bit float as a float32. Blocks have a scale for each 32 values: looking it up leaves the
// processor's arithmetic to the values.
#pragma once

#include <array>

namespace mt::kernels {

struct HalfTable {
  HalfTable();
  std::array<float, 65536> value;  // by bits
};
extern const HalfTable half_table;

}  // namespace mt::kernels
