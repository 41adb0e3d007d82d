#include "checkpoint/byte_source.h"

#include <cstring>
#include <utility>

#include "base/error.h"

namespace mt::checkpoint {

ByteSource ByteSource::file(const std::string& path) {
  ByteSource source;
  source.file_ = MappedFile::open(path);
  source.name_ = path;
  source.size_ = source.file_->bytes().size();
  return source;
}

ByteSource ByteSource::memory(std::span<const std::byte> bytes, std::string name) {
  ByteSource source;
  source.memory_ = bytes;
  source.name_ = std::move(name);
  source.size_ = bytes.size();
  return source;
}

void ByteSource::read_at(size_t offset, std::span<std::byte> out) const {
  if (offset > size_ || out.size() > size_ - offset) {
    throw fail(ErrorKind::kIo, "{}: {} bytes at {} leave the file of {}", name_, out.size(), offset,
               size_);
  }
  if (out.empty()) return;
  if (file_) {
    file_->read_at(offset, out);
  } else {
    std::memcpy(out.data(), memory_.data() + offset, out.size());
  }
}

}  // namespace mt::checkpoint
