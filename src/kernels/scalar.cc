// The kernels in plain code: what any processor runs, and what the others are held against.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/dtype.h"
#include "kernels/instruction_set.h"
#include "kernels/unpack.h"

namespace mt::kernels {
namespace {

int8_t* signed_bytes(Row row) { return reinterpret_cast<int8_t*>(row.q); }

// NaN if any value is not finite: 8-bit integers could not show it. 0 if all are so small that the
// scale would have no inverse.
float scale_of(const float* x, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(x[i])) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::abs(x[i]));
  }
  const float scale = largest / 127.0F;
  return scale < std::numeric_limits<float>::min() ? 0.0F : scale;
}

void quantise(const float* x, int64_t k, Row out) {
  const int64_t padded = chunk_count(k) * kChunk;
  int8_t* q = signed_bytes(out);
  for (int64_t b = 0; b < k / 32; ++b) {
    const float scale = scale_of(x + 32 * b, 32);
    const float inverse = scale > 0 ? 1.0F / scale : 0.0F;
    std::fill_n(out.scale + 8 * b, 8, scale);
    for (int64_t i = 32 * b; i < 32 * (b + 1); ++i) {
      const float rounded = inverse > 0 ? std::nearbyint(x[i] * inverse) : 0.0F;
      q[i] = static_cast<int8_t>(std::clamp(rounded, -127.0F, 127.0F));
    }
    for (int64_t g = 2 * b; g < 2 * (b + 1); ++g) {
      int sum = 0;
      for (int64_t i = 16 * g; i < 16 * (g + 1); ++i) sum += q[i];
      out.per_16[g] = scale * static_cast<float>(sum);
    }
  }
  std::fill(out.q + k, out.q + padded, uint8_t{0});
  std::fill(out.scale + k / 4, out.scale + padded / 4, 0.0F);
  std::fill(out.per_16 + k / 16, out.per_16 + group_count(k), 0.0F);
}

float dot(Row w, bool minimum, Row x, int64_t k) {
  float sum = 0;
  for (int64_t group = 0; group < k / 16; ++group) {
    int product = 0;
    for (int64_t i = 16 * group; i < 16 * (group + 1); ++i) {
      product += signed_bytes(w)[i] * signed_bytes(x)[i];
    }
    sum += w.scale[4 * group] * x.scale[4 * group] * static_cast<float>(product);
    if (minimum) sum += w.per_16[group] * x.per_16[group];
  }
  return sum;
}

void dot_unpacked(Row w, bool minimum, Rows x, Results out) {
  for (int64_t m = 0; m < x.count; ++m) out.data[m * out.stride] = dot(w, minimum, x[m], x.k);
}

void to_f32(Row w, bool minimum, int64_t k, float* out) {
  for (int64_t i = 0; i < k; ++i) {
    const float value = w.scale[i / 4] * static_cast<float>(signed_bytes(w)[i]);
    out[i] = minimum ? value + w.per_16[i / 16] : value;
  }
}

template <Float kType>
float load(const void* in, int64_t i) {
  const auto* bytes = static_cast<const char*>(in);
  if constexpr (kType == Float::kF32) {
    float value = 0;
    std::memcpy(&value, bytes + 4 * i, 4);
    return value;
  } else {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes + 2 * i, 2);
    return kType == Float::kF16 ? Float16{bits}.to_float() : BFloat16{bits}.to_float();
  }
}

template <Float kType>
void widen(const void* in, int64_t k, float* out) {
  for (int64_t i = 0; i < k; ++i) out[i] = load<kType>(in, i);
}

template <Float kType>
void matvec(FloatRows w, const float* x, int64_t m, Results out) {
  for (int64_t row = 0; row < w.count; ++row) {
    for (int64_t j = 0; j < m; ++j) {
      float sum = 0;
      for (int64_t i = 0; i < w.k; ++i) sum += load<kType>(w.data, row * w.k + i) * x[j * w.k + i];
      out.data[j * out.stride + row] = sum;
    }
  }
}

}  // namespace

const KernelTable& scalar_kernels() {
  static constexpr KernelTable kTable = {
      .quantise = quantise,
      .formats = {{{unpack_row_of<Format::kQ4_0>},
                   {unpack_row_of<Format::kQ4_1>},
                   {unpack_row_of<Format::kQ5_0>},
                   {unpack_row_of<Format::kQ5_1>},
                   {unpack_row_of<Format::kQ8_0>},
                   {unpack_row_of<Format::kQ2_K>},
                   {unpack_row_of<Format::kQ3_K>},
                   {unpack_row_of<Format::kQ4_K>},
                   {unpack_row_of<Format::kQ5_K>},
                   {unpack_row_of<Format::kQ6_K>}}},
      .dot_unpacked = dot_unpacked,
      .to_f32 = to_f32,
      .widen = {widen<Float::kF32>, widen<Float::kF16>, widen<Float::kBF16>},
      .matvec = {matvec<Float::kF32>, matvec<Float::kF16>, matvec<Float::kBF16>},
  };
  return kTable;
}

}  // namespace mt::kernels
