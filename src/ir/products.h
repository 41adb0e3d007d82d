// Products of 16-bit floats, rewritten into forms that a platform is fast at.
//
// XLA:CPU has a fast bfloat16 product only on processors with AVX512-BF16, and there only for rows
// (the lhs contracts its last dimensions) times columns or rows (the rhs contracts its first or
// last ones). Any other may run 30 times slower than the same product of operands converted to
// float32.
#pragma once

#include <memory>

#include "ir/graph.h"

namespace mt::ir {

enum class Products : uint8_t {
  kAsTraced,
  kWide,          // float32 products of converted operands
  kBfloat16Rows,  // bfloat16 ones as rows, the lhs transposed in memory where it must be; others
                  // wide
};

// `graph` must come from optimise(), and so does the result. Products of other types stay.
std::shared_ptr<Graph> suit_products(const Graph& graph, Products products);

}  // namespace mt::ir
