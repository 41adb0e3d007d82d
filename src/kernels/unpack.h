// Block formats taken apart by plain code: the scalar kernels, and what others use for the formats
// that they have no faster code for.
#pragma once

#include "kernels/kernel_table.h"

namespace mt::kernels {

// `blocks` holds one row of k values.
void unpack_row(Format format, const uint8_t* blocks, int64_t k, Row out);

template <Format kFormat>
void unpack_row_of(const uint8_t* blocks, int64_t k, Row out) {
  unpack_row(kFormat, blocks, k, out);
}

}  // namespace mt::kernels
