#include "base/tensor.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace mt {
namespace {

template <typename T>
double load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof(T));
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
    return static_cast<double>(v.to_float());
  } else {
    return static_cast<double>(v);
  }
}

template <typename T>
void store(std::byte* p, double x) {
  T v;
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
    v = T::from_float(static_cast<float>(x));
  } else {
    v = static_cast<T>(x);
  }
  std::memcpy(p, &v, sizeof(T));
}

// Calls f.template operator()<T>() with the C++ type of a dtype.
template <typename F>
auto dispatch(DType dtype, F f) {
  switch (dtype) {
    case DType::kPred: return f.template operator()<uint8_t>();
    case DType::kS8: return f.template operator()<int8_t>();
    case DType::kS32: return f.template operator()<int32_t>();
    case DType::kS64: return f.template operator()<int64_t>();
    case DType::kU8: return f.template operator()<uint8_t>();
    case DType::kU32: return f.template operator()<uint32_t>();
    case DType::kU64: return f.template operator()<uint64_t>();
    case DType::kF16: return f.template operator()<Float16>();
    case DType::kBF16: return f.template operator()<BFloat16>();
    case DType::kF32: return f.template operator()<float>();
    case DType::kF64: return f.template operator()<double>();
  }
  MT_CHECK(false);
  std::abort();
}

// Copies a strided box from `src` into contiguous `dst`, innermost dimension last.
void copy_box(const std::byte* src, std::byte* dst, const Shape& sizes,
              const std::vector<int64_t>& strides, int64_t element, size_t axis) {
  if (axis == sizes.size()) {
    std::memcpy(dst, src, static_cast<size_t>(element));
    return;
  }
  const bool innermost = axis + 1 == sizes.size();
  if (innermost && strides[axis] == 1) {
    std::memcpy(dst, src, static_cast<size_t>(sizes[axis] * element));
    return;
  }
  int64_t block = element;
  for (size_t a = axis + 1; a < sizes.size(); ++a) block *= sizes[a];
  for (int64_t i = 0; i < sizes[axis]; ++i) {
    copy_box(src + i * strides[axis] * element, dst + i * block, sizes, strides, element, axis + 1);
  }
}

std::vector<int64_t> row_major_strides(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

}  // namespace

Tensor::Tensor(DType dtype, Shape shape)
    : dtype_(dtype), shape_(std::move(shape)), size_(element_count(shape_)) {
  owned_ = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(size_ * byte_size(dtype)));
  bytes_ = *owned_;
}

Tensor::Tensor(DType dtype, Shape shape, std::span<const std::byte> bytes,
               std::shared_ptr<const void> owner)
    : dtype_(dtype),
      shape_(std::move(shape)),
      size_(element_count(shape_)),
      bytes_(bytes),
      owner_(std::move(owner)) {
  MT_CHECK(static_cast<int64_t>(bytes_.size()) == size_ * byte_size(dtype_));
}

std::span<std::byte> Tensor::mutable_bytes() {
  MT_CHECK(owned_ != nullptr || size_ == 0);
  return owned_ ? std::span<std::byte>(*owned_) : std::span<std::byte>();
}

Tensor Tensor::cast(DType dtype) const {
  if (dtype == dtype_) return *this;
  Tensor out(dtype, shape_);
  const std::byte* in = bytes_.data();
  std::byte* to = out.mutable_bytes().data();
  dispatch(dtype_, [&]<typename From>() {
    dispatch(dtype, [&]<typename To>() {
      for (int64_t i = 0; i < size_; ++i) {
        store<To>(to + i * static_cast<int64_t>(sizeof(To)),
                  load<From>(in + i * static_cast<int64_t>(sizeof(From))));
      }
    });
  });
  return out;
}

Tensor Tensor::reshape(Shape shape) const {
  MT_CHECK(element_count(shape) == size_);
  Tensor out = *this;
  out.shape_ = std::move(shape);
  return out;
}

Tensor Tensor::transpose(const std::vector<int>& permutation) const {
  MT_CHECK(permutation.size() == shape_.size());
  const auto strides = row_major_strides(shape_);
  Shape sizes;
  std::vector<int64_t> permuted;
  for (const int p : permutation) {
    sizes.push_back(shape_[static_cast<size_t>(p)]);
    permuted.push_back(strides[static_cast<size_t>(p)]);
  }
  Tensor out(dtype_, sizes);
  if (size_ > 0) {
    copy_box(bytes_.data(), out.mutable_bytes().data(), sizes, permuted, byte_size(dtype_), 0);
  }
  return out;
}

Tensor Tensor::slice(const std::vector<int64_t>& start, const Shape& sizes) const {
  MT_CHECK(start.size() == shape_.size() && sizes.size() == shape_.size());
  const auto strides = row_major_strides(shape_);
  int64_t offset = 0;
  for (size_t i = 0; i < shape_.size(); ++i) {
    MT_CHECK(start[i] >= 0 && start[i] + sizes[i] <= shape_[i]);
    offset += start[i] * strides[i];
  }
  Tensor out(dtype_, sizes);
  if (out.size() > 0) {
    copy_box(bytes_.data() + offset * byte_size(dtype_), out.mutable_bytes().data(), sizes, strides,
             byte_size(dtype_), 0);
  }
  return out;
}

}  // namespace mt
