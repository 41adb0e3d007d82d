#include "models/gemma3/weight_copy.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.h"
#include "checkpoint/parallel.h"

namespace mt::models::gemma3 {
namespace {

using checkpoint::parallel_ranges;
using checkpoint::TensorReader;

constexpr int64_t kStripElements = int64_t{1} << 18;  // 1 MB of float32: stays in a core's cache

// A tensor that is written once, piece by piece, from several threads; not zeroed first, which
// would double the time of a large one.
class Target {
 public:
  Target(DType dtype, const Shape& shape) : dtype_(dtype), shape_(shape) {
    MT_CHECK(is_float(dtype));
    bytes_ = static_cast<size_t>(element_count(shape) * byte_size(dtype));
    memory_ = std::make_shared_for_overwrite<std::byte[]>(bytes_);
  }
  void store(int64_t first, std::span<const float> values) {
    std::byte* out = memory_.get() + first * byte_size(dtype_);
    switch (dtype_) {
      case DType::kF32: std::memcpy(out, values.data(), values.size_bytes()); return;
      case DType::kBF16: return convert<BFloat16>(out, values, BFloat16::from_float);
      case DType::kF16: return convert<Float16>(out, values, Float16::from_float);
      default: return convert<double>(out, values, [](float x) { return double{x}; });
    }
  }
  Tensor take() { return Tensor(dtype_, shape_, {memory_.get(), bytes_}, memory_); }

 private:
  template <typename T, typename F>
  static void convert(std::byte* out, std::span<const float> values, F f) {
    T* typed = reinterpret_cast<T*>(out);
    for (size_t i = 0; i < values.size(); ++i) typed[i] = f(values[i]);
  }

  DType dtype_;
  Shape shape_;
  size_t bytes_ = 0;
  std::shared_ptr<std::byte[]> memory_;
};

std::vector<float> read_strip(const TensorReader& reader, std::string_view name, int64_t first,
                              int64_t count) {
  std::vector<float> strip(static_cast<size_t>(count));
  reader.read_f32(name, first, strip);
  return strip;
}

// out[c * rows + r] = in[r * columns + c], in tiles that fit the first-level cache.
void transpose(const float* in, int64_t rows, int64_t columns, float* out) {
  constexpr int64_t kTile = 16;
  for (int64_t c0 = 0; c0 < columns; c0 += kTile) {
    const int64_t c1 = std::min(columns, c0 + kTile);
    for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
      const int64_t r1 = std::min(rows, r0 + kTile);
      for (int64_t c = c0; c < c1; ++c) {
        for (int64_t r = r0; r < r1; ++r) out[c * rows + r] = in[r * columns + c];
      }
    }
  }
}

}  // namespace

Tensor copy_elements(const TensorReader& reader, std::string_view name, const Shape& shape,
                     DType want, Affine map) {
  Target target(want, shape);
  const int64_t row = shape.empty() ? 1 : shape.back();
  const int64_t rows = row == 0 ? 0 : element_count(shape) / row;
  parallel_ranges(rows, std::max<int64_t>(1, kStripElements / std::max<int64_t>(1, row)),
                  [&](int64_t begin, int64_t end) {
                    auto strip = read_strip(reader, name, begin * row, (end - begin) * row);
                    for (float& x : strip) x = x * map.scale + map.shift;
                    target.store(begin * row, strip);
                  });
  return target.take();
}

Tensor copy_transposed(const TensorReader& reader, std::string_view name, int64_t rows,
                       int64_t columns, const Shape& shape, DType want) {
  MT_CHECK(element_count(shape) == rows * columns);
  Target target(want, shape);
  constexpr int64_t kMostRows = 128;  // the run that is written at once
  const int64_t grain =
      std::clamp<int64_t>(kStripElements / std::max<int64_t>(1, columns), 16, kMostRows);
  parallel_ranges(rows, grain, [&](int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    const auto strip = read_strip(reader, name, begin * columns, n * columns);
    std::vector<float> turned(strip.size());
    transpose(strip.data(), n, columns, turned.data());
    for (int64_t c = 0; c < columns; ++c) {
      target.store(c * rows + begin, {turned.data() + c * n, static_cast<size_t>(n)});
    }
  });
  return target.take();
}

Tensor copy_stacked(const TensorReader& reader, std::string_view name, const Shape& shape,
                    int64_t count, int64_t index, DType want) {
  Target target(want, shape);
  const int64_t row = shape[0] == 0 ? 0 : element_count(shape) / shape[0];
  const int64_t stride = row * count;
  parallel_ranges(shape[0], std::max<int64_t>(1, kStripElements / std::max<int64_t>(1, stride)),
                  [&](int64_t begin, int64_t end) {
                    const auto strip =
                        read_strip(reader, name, begin * stride, (end - begin) * stride);
                    for (int64_t r = begin; r < end; ++r) {
                      const float* from = strip.data() + (r - begin) * stride + index * row;
                      target.store(r * row, {from, static_cast<size_t>(row)});
                    }
                  });
  return target.take();
}

void each_row(const TensorReader& reader, std::string_view name, int64_t rows, int64_t columns,
              const Rows& take) {
  parallel_ranges(rows, std::max<int64_t>(1, kStripElements / std::max<int64_t>(1, columns)),
                  [&](int64_t begin, int64_t end) {
                    take(begin, read_strip(reader, name, begin * columns, (end - begin) * columns));
                  });
}

void each_row_of_transpose(const Tensor& matrix, int64_t rows, int64_t columns, const Rows& take) {
  constexpr int64_t kMostRows = 64;
  const float* in = matrix.data<float>().data();
  parallel_ranges(rows, kMostRows, [&](int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    std::vector<float> turned(static_cast<size_t>(n * columns));
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = 0; r < n; ++r)
        turned[static_cast<size_t>(r * columns + c)] = in[c * rows + begin + r];
    }
    take(begin, turned);
  });
}

}  // namespace mt::models::gemma3
