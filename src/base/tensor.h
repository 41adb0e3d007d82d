// A dense row-major array in host memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/shape.h"

namespace mt {

class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, Shape shape);  // zeroed, owned
  // Views bytes that `owner` keeps alive (a mapped file, say). Size must match.
  Tensor(DType dtype, Shape shape, std::span<const std::byte> bytes,
         std::shared_ptr<const void> owner);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t size() const { return size_; }  // elements
  std::span<const std::byte> bytes() const { return bytes_; }
  std::span<std::byte> mutable_bytes();  // only for owned tensors

  template <typename T>
  std::span<const T> data() const {  // T must have the dtype's size
    MT_CHECK(static_cast<int64_t>(sizeof(T)) == byte_size(dtype_));
    return {reinterpret_cast<const T*>(bytes_.data()), static_cast<size_t>(size_)};
  }
  template <typename T>
  std::span<T> mutable_data() {
    MT_CHECK(static_cast<int64_t>(sizeof(T)) == byte_size(dtype_));
    return {reinterpret_cast<T*>(mutable_bytes().data()), static_cast<size_t>(size_)};
  }
  template <typename T>
  static Tensor of(DType dtype, Shape shape, const std::vector<T>& values) {
    Tensor t(dtype, std::move(shape));
    MT_CHECK(static_cast<int64_t>(values.size()) == t.size());
    auto out = t.mutable_data<T>();
    for (size_t i = 0; i < values.size(); ++i) out[i] = values[i];
    return t;
  }

  // Elementwise conversion between any two numeric dtypes (floats round to nearest even).
  Tensor cast(DType dtype) const;
  Tensor reshape(Shape shape) const;                            // shares bytes
  Tensor transpose(const std::vector<int>& permutation) const;  // copies
  // Copies the box [start, start+sizes).
  Tensor slice(const std::vector<int64_t>& start, const Shape& sizes) const;

 private:
  DType dtype_ = DType::kF32;
  Shape shape_;
  int64_t size_ = 0;
  std::span<const std::byte> bytes_;
  std::shared_ptr<std::vector<std::byte>> owned_;
  std::shared_ptr<const void> owner_;
};

}  // namespace mt
