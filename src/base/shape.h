// Shapes: a list of dimension sizes, outermost first (row-major).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mt {

using Shape = std::vector<int64_t>;

// Product of the dimensions (1 for a scalar). Throws kLimit on overflow or a negative dimension.
int64_t element_count(const Shape& shape);
std::string to_string(const Shape& shape);  // "[2, 3]"

}  // namespace mt
