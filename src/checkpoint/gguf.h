// GGUF versions 2 and 3: metadata and tensors, the quantised ones given as float32.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "checkpoint/byte_source.h"
#include "checkpoint/gguf_blocks.h"
#include "checkpoint/reader.h"

namespace mt::checkpoint {

// One metadata value. Integers narrower than 64 bits widen to int64, float32 to double.
class GgufValue {
 public:
  using Variant =
      std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<uint8_t>,  // bools
                   std::vector<int64_t>, std::vector<uint64_t>, std::vector<float>,
                   std::vector<double>, std::vector<std::string>, std::vector<GgufValue>>;

  GgufValue() = default;
  explicit GgufValue(Variant value) : value_(std::move(value)) {}
  const Variant& get() const { return value_; }

  // Each throws kIo ("expected an integer, found a string") on another type.
  bool as_bool() const;
  int64_t as_int() const;
  double as_double() const;  // integers too
  const std::string& as_string() const;
  const std::vector<std::string>& as_strings() const;
  const std::vector<float>& as_floats() const;  // an array of float32
  const std::vector<int64_t>& as_ints() const;  // an array of integers up to 32 bits, or int64
  const char* kind() const;                     // "a string", "an array of strings"

 private:
  Variant value_;
};

struct GgufTensor {
  std::string name;
  TensorInfo info;
  const BlockFormat* format = nullptr;
  size_t offset = 0;  // of its first byte in the file
};

struct GgufHeader {
  uint32_t version = 0;
  std::vector<std::pair<std::string, GgufValue>> metadata;  // in the file's order
  std::vector<GgufTensor> tensors;
};

// Throws kIo naming the file and the key or tensor: wrong magic or version, counts or lengths past
// the end, a key or tensor twice, an unsupported tensor type, an offset that is not aligned or
// leaves the file.
GgufHeader parse_gguf(const ByteSource& source);

class GgufFile final : public TensorReader {
 public:
  static std::unique_ptr<GgufFile> open(const std::string& path);
  static std::unique_ptr<GgufFile> open(const ByteSource& source);
  ~GgufFile() override;

  const GgufValue* metadata(std::string_view key) const;  // nullptr if absent
  const GgufHeader& header() const;

  const std::string& path() const override;
  const std::vector<std::string>& names() const override;
  const TensorInfo* find(std::string_view name) const override;
  Tensor read(std::string_view name) const override;
  void read_f32(std::string_view name, int64_t first, std::span<float> out) const override;
  Tensor read_stored(std::string_view name) const override;

 private:
  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace mt::checkpoint
