// Block formats taken apart by plain code: the scalar kernels, and what others use for the formats
// that they have no faster code for.
#pragma once

#include "kernels/kernel_table.h"

namespace mt::kernels {

// `blocks` holds one row of out.k values.
void unpack_row(Format format, const uint8_t* blocks, Rows out, int64_t row);

}  // namespace mt::kernels
