#include "checkpoint/gguf_write.h"

#include <utility>

#include "base/error.h"
#include "checkpoint/temporary_file.h"

namespace mt::checkpoint {
namespace {

// GGUF's numbers of value types.
enum Type : uint32_t { kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9 };

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_text(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out.append(text);
}

template <typename T>
void put_array(std::string& out, uint32_t type, std::span<const T> values) {
  put<uint32_t>(out, type);
  put<uint64_t>(out, values.size());
  out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

size_t padding(size_t size) {
  constexpr auto kTo = static_cast<size_t>(kGgufAlignment);
  return (kTo - size % kTo) % kTo;
}

std::string make_header(const GgufMetadata& metadata, const std::vector<GgufTensorPlan>& tensors) {
  std::string out = "GGUF";
  put<uint32_t>(out, 3);
  put<uint64_t>(out, tensors.size());
  put<uint64_t>(out, metadata.count());
  out += metadata.bytes();
  uint64_t offset = 0;
  for (const GgufTensorPlan& tensor : tensors) {
    put_text(out, tensor.name);
    put(out, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t d = tensor.shape.size(); d-- > 0;) {
      put(out, static_cast<uint64_t>(tensor.shape[d]));
    }
    put(out, tensor.format->id);
    put(out, offset);
    offset += static_cast<size_t>(tensor.bytes());
    offset += padding(offset);
  }
  out.append(padding(out.size()), '\0');
  return out;
}

size_t size_of(const std::string& header, const std::vector<GgufTensorPlan>& tensors) {
  size_t size = header.size();
  for (const GgufTensorPlan& tensor : tensors) {
    size += static_cast<size_t>(tensor.bytes());
    size += padding(size);
  }
  return size;
}

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

void GgufMetadata::begin(std::string_view key, uint32_t type) {
  put_text(bytes_, key);
  put(bytes_, type);
  ++count_;
}
void GgufMetadata::flag(std::string_view key, bool value) {
  begin(key, kBool);
  put<uint8_t>(bytes_, value ? 1 : 0);
}
void GgufMetadata::u32(std::string_view key, int64_t value) {
  begin(key, kU32);
  put(bytes_, static_cast<uint32_t>(value));
}
void GgufMetadata::f32(std::string_view key, double value) {
  begin(key, kF32);
  put(bytes_, static_cast<float>(value));
}
void GgufMetadata::text(std::string_view key, std::string_view value) {
  begin(key, kString);
  put_text(bytes_, value);
}
void GgufMetadata::texts(std::string_view key, std::span<const std::string> values) {
  begin(key, kArray);
  put<uint32_t>(bytes_, kString);
  put<uint64_t>(bytes_, values.size());
  for (const std::string& value : values) put_text(bytes_, value);
}
void GgufMetadata::floats(std::string_view key, std::span<const float> values) {
  begin(key, kArray);
  put_array(bytes_, kF32, values);
}
void GgufMetadata::ints(std::string_view key, std::span<const int32_t> values) {
  begin(key, kArray);
  put_array(bytes_, kI32, values);
}

struct GgufWriter::Impl {
  Impl(const std::string& path, const std::string& header, std::vector<GgufTensorPlan> plan)
      : tensors(std::move(plan)), size(size_of(header, tensors)), file(path, size) {
    file.write(as_bytes(header));
  }
  std::vector<GgufTensorPlan> tensors;
  size_t size = 0, next = 0;
  TemporaryFile file;
};

GgufWriter::GgufWriter(const std::string& path, const GgufMetadata& metadata,
                       std::vector<GgufTensorPlan> tensors) {
  const std::string header = make_header(metadata, tensors);
  impl_ = std::make_unique<Impl>(path, header, std::move(tensors));
}
GgufWriter::~GgufWriter() = default;

void GgufWriter::write(std::span<const std::byte> bytes) {
  MT_CHECK(impl_->next < impl_->tensors.size());
  MT_CHECK(static_cast<int64_t>(bytes.size()) == impl_->tensors[impl_->next].bytes());
  ++impl_->next;
  impl_->file.write(bytes);
  impl_->file.write(as_bytes(std::string(padding(bytes.size()), '\0')));
}

void GgufWriter::commit() {
  MT_CHECK(impl_->next == impl_->tensors.size());
  impl_->file.commit();
}

size_t GgufWriter::file_bytes() const { return impl_->size; }

}  // namespace mt::checkpoint
