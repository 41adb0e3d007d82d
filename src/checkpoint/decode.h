// A range of a stored tensor as float32.
#pragma once

#include <cstdint>
#include <span>

#include "base/tensor.h"
#include "checkpoint/byte_source.h"
#include "checkpoint/gguf_blocks.h"
#include "checkpoint/reader.h"

namespace mt::checkpoint {

// Where a tensor's bytes lie, and how they are to be read.
struct StoredTensor {
  std::string_view name;  // for messages
  const TensorInfo* info = nullptr;
  const BlockFormat* format = nullptr;
  size_t offset = 0;
};

// TensorReader::read_f32 for one stored tensor; large ranges are decoded on several threads.
void decode_f32(const ByteSource& source, const StoredTensor& tensor, int64_t first,
                std::span<float> out);

// TensorReader::read for one stored tensor.
Tensor decode_whole(const ByteSource& source, const StoredTensor& tensor);

}  // namespace mt::checkpoint
