// The block formats of GGUF tensors, and their values as float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/dtype.h"

namespace mt::checkpoint {

struct BlockFormat {
  uint32_t id = 0;            // ggml's type number
  std::string_view name;      // "Q4_K"
  int64_t elements = 0;       // a block holds
  int64_t bytes = 0;          // a block takes
  DType dtype = DType::kF32;  // the values' type; float32 for quantised formats
  // Decodes `blocks` whole blocks to float32; null for integer types, which have no such reading.
  void (*to_float)(const std::byte* in, int64_t blocks, float* out) = nullptr;
  // The other way (gguf_quantise.h); null for formats that are only read.
  bool (*from_float)(const float* in, int64_t blocks, std::byte* out) = nullptr;

  bool quantised() const { return elements > 1; }
};

// nullptr for a type that is not supported.
const BlockFormat* find_block_format(uint32_t id);
const BlockFormat* find_block_format(std::string_view name);

}  // namespace mt::checkpoint
