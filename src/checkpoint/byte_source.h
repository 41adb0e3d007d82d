// Bytes at offsets, from a file or from memory: what the checkpoint parsers read through.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/file.h"

namespace mt::checkpoint {

class ByteSource final {
 public:
  // Regular files only; throws kIo.
  static ByteSource file(const std::string& path);
  // Views `bytes`, which must outlive every copy; `name` stands in messages.
  static ByteSource memory(std::span<const std::byte> bytes, std::string name);

  size_t size() const { return size_; }
  const std::string& name() const { return name_; }
  // Copies [offset, offset + out.size()). Throws kIo past the end, also when a file has shrunk
  // since it was opened (pages of a map are never touched, so no SIGBUS).
  void read_at(size_t offset, std::span<std::byte> out) const;

 private:
  ByteSource() = default;
  std::shared_ptr<const MappedFile> file_;  // null: memory_
  std::span<const std::byte> memory_;
  std::string name_;
  size_t size_ = 0;
};

}  // namespace mt::checkpoint
