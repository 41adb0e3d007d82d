// Writes GGUF files (version 3): metadata, then tensors one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"
#include "checkpoint/gguf_blocks.h"

namespace mt::checkpoint {

// Keys and values in the order in which they are added, as they lie in the file.
class GgufMetadata final {
 public:
  void flag(std::string_view key, bool value);
  void u32(std::string_view key, int64_t value);
  void f32(std::string_view key, double value);
  void text(std::string_view key, std::string_view value);
  void texts(std::string_view key, std::span<const std::string> values);
  void floats(std::string_view key, std::span<const float> values);
  void ints(std::string_view key, std::span<const int32_t> values);

  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view key, uint32_t type);

  std::string bytes_;
  uint64_t count_ = 0;
};

struct GgufTensorPlan {
  std::string name;
  const BlockFormat* format = nullptr;
  Shape shape;  // outermost first; the last one in whole blocks

  int64_t bytes() const { return element_count(shape) / format->elements * format->bytes; }
};

inline constexpr int64_t kGgufAlignment = 32;

// The file appears under its name with commit(), and otherwise not at all (TemporaryFile). The
// whole size is known, and reserved, before the first tensor.
class GgufWriter final {
 public:
  GgufWriter(const std::string& path, const GgufMetadata& metadata,
             std::vector<GgufTensorPlan> tensors);
  ~GgufWriter();

  void write(std::span<const std::byte> bytes);  // of the next tensor in the plan
  void commit();                                 // after the last one
  size_t file_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mt::checkpoint
