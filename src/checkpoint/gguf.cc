#include "checkpoint/gguf.h"

#include <unordered_map>

#include "base/error.h"
#include "base/heap.h"
#include "checkpoint/decode.h"

namespace mt::checkpoint {

struct GgufFile::Impl {
  explicit Impl(const ByteSource& from) : source(from), header(parse_gguf(from)) {
    for (const GgufTensor& tensor : header.tensors) {
      names.push_back(tensor.name);
      tensors.emplace(tensor.name, &tensor);
    }
    for (const auto& [key, value] : header.metadata) metadata.emplace(key, &value);
  }
  StoredTensor stored(std::string_view name) const {
    const auto it = tensors.find(name);
    if (it == tensors.end()) {
      throw fail(ErrorKind::kIo, "{}: no tensor \"{}\"", source.name(), name);
    }
    const GgufTensor& tensor = *it->second;
    return {tensor.name, &tensor.info, tensor.format, tensor.offset};
  }

  ByteSource source;
  GgufHeader header;
  std::vector<std::string> names;
  std::unordered_map<std::string_view, const GgufTensor*> tensors;
  std::unordered_map<std::string_view, const GgufValue*> metadata;
};

GgufFile::GgufFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GgufFile::~GgufFile() = default;

std::unique_ptr<GgufFile> GgufFile::open(const ByteSource& source) {
  return std::unique_ptr<GgufFile>(new GgufFile(std::make_unique<Impl>(source)));
}
std::unique_ptr<GgufFile> GgufFile::open(const std::string& path) {
  return open(ByteSource::file(path));
}

const GgufValue* GgufFile::metadata(std::string_view key) const {
  const auto it = impl_->metadata.find(key);
  return it == impl_->metadata.end() ? nullptr : it->second;
}
const GgufHeader& GgufFile::header() const { return impl_->header; }
const std::string& GgufFile::path() const { return impl_->source.name(); }
const std::vector<std::string>& GgufFile::names() const { return impl_->names; }
const TensorInfo* GgufFile::find(std::string_view name) const {
  const auto it = impl_->tensors.find(name);
  return it == impl_->tensors.end() ? nullptr : &it->second->info;
}
Tensor GgufFile::read(std::string_view name) const {
  return decode_whole(impl_->source, impl_->stored(name));
}
void GgufFile::read_f32(std::string_view name, int64_t first, std::span<float> out) const {
  decode_f32(impl_->source, impl_->stored(name), first, out);
}

Tensor GgufFile::read_stored(std::string_view name) const {
  const StoredTensor tensor = impl_->stored(name);
  const auto bytes = static_cast<size_t>(tensor.info->stored_bytes);
  const std::shared_ptr<std::byte> memory = aligned_memory(bytes);
  const std::span<std::byte> all(memory.get(), bytes);
  impl_->source.read_at(tensor.offset, all);
  return {DType::kU8, {tensor.info->stored_bytes}, all, memory};
}

}  // namespace mt::checkpoint
