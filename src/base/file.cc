#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace mt {
namespace {

Error io_error(const std::string& path, const char* what) {
  return fail(ErrorKind::kIo, "{}: {}: {}", path, what, std::strerror(errno));
}

// Opens without blocking (a FIFO would otherwise wait for a writer) and insists on a regular file.
int open_regular(const std::string& path, size_t* size) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw io_error(path, "cannot open");
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    ::close(fd);
    throw io_error(path, "cannot stat");
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    throw fail(ErrorKind::kIo, "{}: {} where a regular file was expected", path,
               S_ISDIR(info.st_mode) ? "is a directory" : "is not a file");
  }
  *size = static_cast<size_t>(info.st_size);
  return fd;
}

void read_exactly(int fd, size_t offset, std::span<std::byte> out, const std::string& path) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t n =
        ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw io_error(path, "cannot read");
    if (n == 0)
      throw fail(ErrorKind::kIo, "{}: ends at byte {}, expected {} more", path, offset + done,
                 out.size() - done);
    done += static_cast<size_t>(n);
  }
}

}  // namespace

std::string read_file(const std::string& path) {
  size_t size = 0;
  const int fd = open_regular(path, &size);
  std::string text(size, '\0');
  try {
    read_exactly(fd, 0, std::as_writable_bytes(std::span(text.data(), text.size())), path);
  } catch (...) {
    ::close(fd);
    throw;
  }
  ::close(fd);
  return text;
}

void write_file(const std::string& path, std::string_view bytes) {
  const std::string temporary = fmt::format("{}.tmp.{}", path, ::getpid());
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) throw io_error(temporary, "cannot create");
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const Error error = io_error(temporary, "cannot write");
      ::close(fd);
      ::unlink(temporary.c_str());
      throw error;
    }
    done += static_cast<size_t>(n);
  }
  const bool synced = ::fsync(fd) == 0;
  ::close(fd);
  if (!synced || ::rename(temporary.c_str(), path.c_str()) != 0) {
    const Error error = io_error(path, "cannot write");
    ::unlink(temporary.c_str());
    throw error;
  }
}

void make_directories(const std::string& path) {
  for (size_t i = 1; i <= path.size(); ++i) {
    if (i != path.size() && path[i] != '/') continue;
    const std::string prefix = path.substr(0, i);
    if (::mkdir(prefix.c_str(), 0755) != 0 && errno != EEXIST) {
      throw io_error(prefix, "cannot create directory");
    }
  }
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    throw fail(ErrorKind::kIo, "{}: exists and is not a directory", path);
  }
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  std::shared_ptr<MappedFile> file(new MappedFile());
  size_t size = 0;
  file->path_ = path;
  file->fd_ = open_regular(path, &size);
  if (size > 0) {
    void* p = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file->fd_, 0);
    if (p == MAP_FAILED) throw io_error(path, "cannot map");
    file->bytes_ = {static_cast<const std::byte*>(p), size};
  }
  return file;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  if (fd_ >= 0) ::close(fd_);
}

void MappedFile::check_size() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) throw io_error(path_, "cannot stat");
  if (static_cast<size_t>(info.st_size) < bytes_.size()) {
    throw fail(ErrorKind::kIo, "{}: was truncated from {} to {} bytes while in use", path_,
               bytes_.size(), info.st_size);
  }
}

void MappedFile::read_at(size_t offset, std::span<std::byte> out) const {
  MT_CHECK(offset + out.size() <= bytes_.size());
  read_exactly(fd_, offset, out, path_);
}

}  // namespace mt
