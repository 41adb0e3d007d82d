#include "kernels/half_table.h"

#include "base/dtype.h"

namespace mt::kernels {

HalfTable::HalfTable() {
  for (size_t bits = 0; bits < value.size(); ++bits) {
    value[bits] = Float16{static_cast<uint16_t>(bits)}.to_float();
  }
}
const HalfTable half_table;

}  // namespace mt::kernels
