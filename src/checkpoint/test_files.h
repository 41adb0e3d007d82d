// For tests only: temporary folders, the message of an expected error, and GGUF bytes made by hand.
#pragma once

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace mt::checkpoint::testing {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "mt_checkpoint_XXXXXX").string();
    MT_CHECK(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The message of the Error that `f` throws; "" if it throws none.
inline std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Little-endian bytes, appended.
class ByteWriter {
 public:
  template <typename T>
  ByteWriter& number(T v) {
    char raw[sizeof(T)];
    std::memcpy(raw, &v, sizeof(T));
    bytes.append(raw, sizeof(T));
    return *this;
  }
  ByteWriter& text(std::string_view s) {  // GGUF's: length, then bytes
    number<uint64_t>(s.size());
    bytes.append(s);
    return *this;
  }
  std::string bytes;
};

inline std::span<const std::byte> as_span(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

// Builds a GGUF file; every part can be made wrong from outside.
class GgufBuilder {
 public:
  GgufBuilder& key(const std::string& name, uint32_t type, const std::string& raw) {
    ByteWriter w;
    w.text(name).number(type);
    metadata_ += w.bytes + raw;
    ++keys;
    return *this;
  }
  template <typename T>
  GgufBuilder& number(const std::string& name, uint32_t type, T v) {
    return key(name, type, ByteWriter().number(v).bytes);
  }
  GgufBuilder& u32(const std::string& name, uint32_t v) { return number(name, 4, v); }
  GgufBuilder& f32(const std::string& name, float v) { return number(name, 6, v); }
  GgufBuilder& text(const std::string& name, const std::string& v) {
    return key(name, 8, ByteWriter().text(v).bytes);
  }
  // `dimensions` innermost first, as in the file.
  GgufBuilder& tensor(const std::string& name, uint32_t type,
                      const std::vector<uint64_t>& dimensions, const std::string& data,
                      uint64_t offset_error = 0) {
    ByteWriter w;
    w.text(name).number(static_cast<uint32_t>(dimensions.size()));
    for (const uint64_t d : dimensions) w.number(d);
    w.number(type).number<uint64_t>(data_.size() + offset_error);
    infos_ += w.bytes;
    data_ += data;
    data_.append((alignment - data_.size() % alignment) % alignment, '\0');
    ++tensors;
    return *this;
  }
  GgufBuilder& floats(const std::string& name, const std::vector<uint64_t>& dimensions,
                      const std::vector<float>& values) {
    ByteWriter w;
    for (const float v : values) w.number(v);
    return tensor(name, 0, dimensions, w.bytes);
  }
  std::string build() const {
    ByteWriter w;
    w.bytes = magic;
    w.number(version).number(tensors).number(keys);
    w.bytes += metadata_ + infos_;
    w.bytes.append((alignment - w.bytes.size() % alignment) % alignment, '\0');
    return w.bytes + data_;
  }

  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t tensors = 0;
  uint64_t keys = 0;
  size_t alignment = 32;

 private:
  std::string metadata_, infos_, data_;
};

}  // namespace mt::checkpoint::testing
