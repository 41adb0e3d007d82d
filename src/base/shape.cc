#include "base/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace mt {

int64_t element_count(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count)) {
      throw fail(ErrorKind::kLimit, "shape {} has too many elements", to_string(shape));
    }
  }
  return count;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace mt
