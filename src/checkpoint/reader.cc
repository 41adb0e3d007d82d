#include "checkpoint/reader.h"

#include <sys/stat.h>

#include <array>
#include <cstring>

#include "base/error.h"
#include "checkpoint/byte_source.h"
#include "checkpoint/gguf.h"
#include "checkpoint/safetensors.h"

namespace mt::checkpoint {
namespace {

// By content, not by name: a file's first four bytes.
bool starts_like_gguf(const ByteSource& source) {
  std::array<std::byte, 4> magic{};
  if (source.size() < magic.size()) return false;
  source.read_at(0, magic);
  return std::memcmp(magic.data(), "GGUF", 4) == 0;
}

}  // namespace

Tensor TensorReader::read_stored(std::string_view name) const {
  throw fail(ErrorKind::kIo, "{}: {} is not stored in blocks", path(), name);
}

const TensorInfo& TensorReader::info(std::string_view name) const {
  if (const TensorInfo* found = find(name)) return *found;
  throw fail(ErrorKind::kIo, "{}: no tensor \"{}\"", path(), name);
}

std::unique_ptr<TensorReader> open(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return open_safetensors_folder(path);
  }
  const ByteSource source = ByteSource::file(path);
  if (starts_like_gguf(source)) return GgufFile::open(source);
  if (path.ends_with(".gguf")) {
    throw fail(ErrorKind::kIo, "{}: not a GGUF file: it does not start with \"GGUF\"", path);
  }
  return open_safetensors(source);
}

}  // namespace mt::checkpoint
