// Files: whole reads, and read-only maps that report truncation as an Error instead of SIGBUS.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace mt {

// Regular files only; throws kIo naming the path and the reason ("is a directory", "no such file").
std::string read_file(const std::string& path);
// Atomic: writes PATH.tmp.PID, syncs, renames.
void write_file(const std::string& path, std::string_view bytes);
void make_directories(const std::string& path);
bool exists(const std::string& path);

class MappedFile {
 public:
  // Regular files only (a FIFO, device or directory is refused). An empty file maps to an empty
  // span.
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }
  // Throws kIo if the file has become shorter than it was when it was mapped. Call before touching
  // pages for the first time: reading past the end of a shrunk file would raise SIGBUS.
  void check_size() const;
  // Copies [offset, offset+out.size()) by pread, so that truncation is an Error, never a signal.
  void read_at(size_t offset, std::span<std::byte> out) const;

 private:
  MappedFile() = default;
  std::string path_;
  int fd_ = -1;
  std::span<const std::byte> bytes_;
};

}  // namespace mt
