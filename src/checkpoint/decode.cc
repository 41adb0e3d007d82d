#include "checkpoint/decode.h"

#include <memory>

#include "base/error.h"
#include "checkpoint/parallel.h"

namespace mt::checkpoint {
namespace {

constexpr int64_t kPieceElements = int64_t{1} << 18;  // stays in a core's cache, in and out

// Blocks [begin, end) counted from the tensor's first.
void decode_blocks(const ByteSource& source, const StoredTensor& tensor, int64_t begin, int64_t end,
                   float* out) {
  const BlockFormat& format = *tensor.format;
  const size_t offset = tensor.offset + static_cast<size_t>(begin * format.bytes);
  const size_t bytes = static_cast<size_t>((end - begin) * format.bytes);
  if (format.name == "F32") {
    source.read_at(offset, std::as_writable_bytes(std::span(out, bytes / sizeof(float))));
    return;
  }
  const auto encoded = std::make_unique_for_overwrite<std::byte[]>(bytes);
  source.read_at(offset, {encoded.get(), bytes});
  format.to_float(encoded.get(), end - begin, out);
}

void check_range(const ByteSource& source, const StoredTensor& tensor, int64_t first,
                 int64_t count) {
  const BlockFormat& format = *tensor.format;
  if (!format.to_float) {
    throw fail(ErrorKind::kIo, "{}: {} is {}, expected a float type", source.name(), tensor.name,
               format.name);
  }
  const int64_t size = element_count(tensor.info->shape);
  MT_CHECK(first >= 0 && count >= 0 && first <= size && count <= size - first);
  MT_CHECK(first % format.elements == 0 && count % format.elements == 0);
}

}  // namespace

void decode_f32(const ByteSource& source, const StoredTensor& tensor, int64_t first,
                std::span<float> out) {
  const int64_t count = static_cast<int64_t>(out.size());
  check_range(source, tensor, first, count);
  const int64_t block = tensor.format->elements;
  const int64_t first_block = first / block;
  parallel_ranges(count / block, kPieceElements / block, [&](int64_t begin, int64_t end) {
    decode_blocks(source, tensor, first_block + begin, first_block + end,
                  out.data() + begin * block);
  });
}

Tensor decode_whole(const ByteSource& source, const StoredTensor& tensor) {
  const TensorInfo& info = *tensor.info;
  const size_t bytes = static_cast<size_t>(element_count(info.shape) * byte_size(info.dtype));
  // Not Tensor(dtype, shape): zeroing first would double the time of a large table.
  const std::shared_ptr<std::byte[]> memory = std::make_shared_for_overwrite<std::byte[]>(bytes);
  const std::span<std::byte> all(memory.get(), bytes);
  if (tensor.format->quantised()) {
    decode_f32(source, tensor, 0, {reinterpret_cast<float*>(memory.get()), bytes / sizeof(float)});
  } else {
    source.read_at(tensor.offset, all);
  }
  return Tensor(info.dtype, info.shape, all, memory);
}

}  // namespace mt::checkpoint
