#include "checkpoint/temporary_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace mt::checkpoint {
namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return path.substr(0, slash + 1);
}

}  // namespace

TemporaryFile::TemporaryFile(const std::string& path, size_t bytes)
    : path_(path), temporary_(fmt::format("{}.tmp.{}", path, ::getpid())) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    throw fail(ErrorKind::kIo, "{}: cannot be written: {}", path,
               S_ISDIR(info.st_mode) ? "is a directory" : "is not a file");
  }
  fd_ = ::open(folder_of(path).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0644);
  named_ = fd_ < 0;
  if (named_) fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) throw error("cannot create");
  if (bytes > 0) reserve(bytes);
}

TemporaryFile::~TemporaryFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (named_) ::unlink(temporary_.c_str());
}

// The blocks are taken at once: a disk that would be full at the end is full now.
void TemporaryFile::reserve(size_t bytes) {
  if (::fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) == 0) return;
  if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR) return;
  constexpr double kMb = 1e6;
  const std::string reason = std::strerror(errno);
  struct statvfs room {};
  const bool known = errno == ENOSPC && ::fstatvfs(fd_, &room) == 0;
  const double free = static_cast<double>(room.f_bavail) * static_cast<double>(room.f_frsize);
  ::close(fd_);
  if (named_) ::unlink(temporary_.c_str());
  fd_ = -1;
  throw fail(ErrorKind::kIo, "{}: cannot write {:.1f} MB: {}{}", path_,
             static_cast<double>(bytes) / kMb, reason,
             known ? fmt::format(" ({:.1f} MB are free)", free / kMb) : "");
}

void TemporaryFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw error("cannot write");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void TemporaryFile::commit() {
  if (::fsync(fd_) != 0) throw error("cannot write");
  if (!named_) {
    const std::string self = fmt::format("/proc/self/fd/{}", fd_);
    ::unlink(temporary_.c_str());  // of an earlier process with our number
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, temporary_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      throw error("cannot create");
    }
    named_ = true;
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw error("cannot rename");
  ::close(fd_);
  fd_ = -1;
}

Error TemporaryFile::error(const char* what) const {
  return fail(ErrorKind::kIo, "{}: {}: {}", path_, what, std::strerror(errno));
}

}  // namespace mt::checkpoint
