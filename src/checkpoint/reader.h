// Named host tensors in a file or folder, read one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "base/tensor.h"

namespace mt::checkpoint {

struct TensorInfo {
  std::string encoding;       // as the format calls it: "F32", "BF16", "Q4_K"
  DType dtype = DType::kF32;  // what read() gives; float32 for quantised blocks
  Shape shape;                // outermost first (GGUF's dimensions reversed)
  int64_t stored_bytes = 0;   // in the file
};

class TensorReader {
 public:
  virtual ~TensorReader() = default;

  virtual const std::string& path() const = 0;
  virtual const std::vector<std::string>& names() const = 0;        // in the file's order
  virtual const TensorInfo* find(std::string_view name) const = 0;  // nullptr if absent

  // The whole tensor. Throws kIo if absent, or if the file has been cut meanwhile.
  virtual Tensor read(std::string_view name) const = 0;

  // Elements [first, first + out.size()) of a float tensor (row-major order) as float32, without
  // holding more of it than that. For quantised tensors both ends must lie on a multiple of the
  // last dimension. Safe to call from several threads.
  virtual void read_f32(std::string_view name, int64_t first, std::span<float> out) const = 0;

  // The bytes as they are in the file, u8 [stored_bytes], aligned to 64. For tensors in blocks,
  // which only GGUF files have. Throws kIo as read() does.
  virtual Tensor read_stored(std::string_view name) const;

  const TensorInfo& info(std::string_view name) const;  // throws kIo naming the tensor if absent
};

// A GGUF file, a safetensors file, or a folder (open_safetensors_folder). Headers are checked whole
// before this returns.
std::unique_ptr<TensorReader> open(const std::string& path);

}  // namespace mt::checkpoint
