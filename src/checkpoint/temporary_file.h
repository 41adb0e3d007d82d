// A file that appears whole under its name, or not at all.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/error.h"

namespace mt::checkpoint {

// Written without a name where the file system can do that, so that not even a killed process
// leaves anything; else beside the target, under another name. Throws kIo naming the target.
class TemporaryFile final {
 public:
  // Refuses a folder, a place that can't be written, and with `bytes` > 0 a disk without so much
  // room.
  explicit TemporaryFile(const std::string& path, size_t bytes = 0);
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile();  // without commit() nothing stays

  void write(std::span<const std::byte> bytes);
  void commit();  // replaces a file of this name

 private:
  void reserve(size_t bytes);
  Error error(const char* what) const;

  std::string path_, temporary_;
  bool named_ = false;
  int fd_ = -1;
};

}  // namespace mt::checkpoint
