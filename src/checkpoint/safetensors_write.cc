#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"

namespace mt::checkpoint {
namespace {

std::string_view encoding_of(DType dtype) {
  switch (dtype) {
    case DType::kPred: return "BOOL";
    case DType::kS8: return "I8";
    case DType::kS32: return "I32";
    case DType::kS64: return "I64";
    case DType::kU8: return "U8";
    case DType::kU32: return "U32";
    case DType::kU64: return "U64";
    case DType::kF16: return "F16";
    case DType::kBF16: return "BF16";
    case DType::kF32: return "F32";
    case DType::kF64: return "F64";
  }
  MT_CHECK(false);
  return "";
}

std::string make_header(const std::vector<std::pair<std::string, Tensor>>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  Json::Object root;
  if (!metadata.empty()) {
    Json::Object members;
    for (const auto& [key, value] : metadata) members.emplace_back(key, Json(value));
    root.emplace_back("__metadata__", Json(std::move(members)));
  }
  int64_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    const int64_t end = at + static_cast<int64_t>(tensor.bytes().size());
    Json::Array shape(tensor.shape().begin(), tensor.shape().end());
    Json::Object entry;
    entry.emplace_back("dtype", Json(std::string(encoding_of(tensor.dtype()))));
    entry.emplace_back("shape", Json(std::move(shape)));
    entry.emplace_back("data_offsets", Json(Json::Array{Json(at), Json(end)}));
    root.emplace_back(name, Json(std::move(entry)));
    at = end;
  }
  std::string text = Json(std::move(root)).dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // the data starts aligned
  return text;
}

// Writes beside the target and renames on commit; an abandoned file is removed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& path)
      : path_(path), temporary_(fmt::format("{}.tmp.{}", path, ::getpid())) {
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd_ < 0) throw error("cannot create");
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw error("cannot write");
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
  }
  void commit() {
    if (::fsync(fd_) != 0) throw error("cannot write");
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw error("cannot rename");
    ::close(fd_);
    fd_ = -1;
  }

 private:
  Error error(const char* what) const {
    return fail(ErrorKind::kIo, "{}: {}: {}", path_, what, std::strerror(errno));
  }

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

}  // namespace

void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string header = make_header(tensors, metadata);
  TemporaryFile file(path);
  const std::array<uint64_t, 1> length = {header.size()};
  file.write(std::as_bytes(std::span(length)));
  file.write(std::as_bytes(std::span(header.data(), header.size())));
  for (const auto& [name, tensor] : tensors) file.write(tensor.bytes());
  file.commit();
}

}  // namespace mt::checkpoint
