// The kernels in plain code: what any processor runs, and what the others are held against.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/dtype.h"
#include "kernels/attend_loops.h"
#include "kernels/instruction_set.h"
#include "kernels/unpack.h"

namespace mt::kernels {
namespace {

template <Format kFormat>
void unpack(const uint8_t* blocks, Rows out, int64_t row) {
  unpack_row(kFormat, blocks, out, row);
}

int8_t& q(Rows rows, int64_t row, int64_t i) {
  return reinterpret_cast<int8_t*>(rows.q(row, i / kChunk))[i % kChunk];
}
int16_t& q(Activations rows, int64_t row, int64_t i) {
  return rows.q(row, i / kChunk)[i % 2 * Activations::kOdd + i % kChunk / 2];
}
template <class AnyRows>
float& scale(AnyRows rows, int64_t row, int64_t i) {
  return rows.scale(row, i / kChunk)[i % kChunk / 4];
}
template <class AnyRows>
float& per_16(AnyRows rows, int64_t row, int64_t i) {
  return rows.per_16(row, i / kBlock)[i % kBlock / 16];
}

// NaN if any value is not finite: integers could not show it. 0 if all are so small that the
// scale would have no inverse.
float scale_of(const float* x, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(x[i])) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::abs(x[i]));
  }
  const float scale = largest / kLargestActivation;
  return scale < std::numeric_limits<float>::min() ? 0.0F : scale;
}

void quantise(const float* x, Activations out, int64_t row) {
  std::fill_n(out.scale(row, chunk_count(out.k) - 1), 16, 0.0F);
  std::fill_n(out.per_16(row, block_count(out.k) - 1), 16, 0.0F);
  std::fill_n(out.q(row, chunk_count(out.k) - 1), kChunk, int16_t{0});
  for (int64_t at = 0; at < out.k; at += 32) {
    const float step = scale_of(x + at, 32);
    const float inverse = step > 0 ? 1.0F / step : 0.0F;
    std::fill_n(&scale(out, row, at), 8, step);
    for (int64_t group = at; group < at + 32; group += 16) {
      int sum = 0;
      for (int64_t i = group; i < group + 16; ++i) {
        const float rounded = inverse > 0 ? std::nearbyint(x[i] * inverse) : 0.0F;
        q(out, row, i) = static_cast<int16_t>(rounded);
        sum += q(out, row, i);
      }
      per_16(out, row, group) = step * static_cast<float>(sum);
    }
  }
}

float dot(Rows w, bool minimum, Activations x, int64_t m) {
  float sum = 0;
  for (int64_t group = 0; group < x.k; group += 16) {
    int product = 0;
    for (int64_t i = group; i < group + 16; ++i) product += q(w, 0, i) * q(x, m, i);
    sum += scale(w, 0, group) * scale(x, m, group) * static_cast<float>(product);
    if (minimum) sum += per_16(w, 0, group) * per_16(x, m, group);
  }
  return sum;
}

void dot_unpacked(Rows w, bool minimum, Activations x, int64_t m, Results out) {
  for (int64_t i = 0; i < m; ++i) out.data[i * out.stride] = dot(w, minimum, x, i);
}

void to_f32(Rows w, bool minimum, float* out) {
  for (int64_t i = 0; i < w.k; ++i) {
    const float value = scale(w, 0, i) * static_cast<float>(q(w, 0, i));
    out[i] = minimum ? value + per_16(w, 0, i) : value;
  }
}

template <Float kType>
float load_float(const void* in, int64_t i) {
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

// A register of one number.
struct One {
  static constexpr int64_t kLanes = 1;
  using Floats = float;
  static float zero() { return 0; }
  static float all_lanes(float v) { return v; }
  static float load(const float* p) { return *p; }
  static void store(float* p, float v) { *p = v; }
  static float add(float a, float b) { return a + b; }
  static float multiply(float a, float b) { return a * b; }
  static float fma(float a, float b, float c) { return a * b + c; }
  static float sum(float v) { return v; }
  static float round(float v) { return std::nearbyint(v); }
  static float max(float a, float b) { return a > b ? a : b; }
  static float max_keeping_nan(float x, float least) { return x < least ? least : x; }
  static float times_power_of_2(float v, float n) {
    return std::isnan(n) ? n : std::ldexp(v, static_cast<int>(n));
  }
  template <Float kType>
  static float load_as(const void* in, int64_t i) {
    if constexpr (kType == Float::kS8) {
      return static_cast<const int8_t*>(in)[i];
    } else {
      return load_float<kType>(in, i);
    }
  }
};

void norm(const NormRow& r) {
  float sum = 0;
  for (int64_t i = 0; i < r.size; ++i) sum += r.x[i] * r.x[i];
  const float inverse = 1.0F / std::sqrt(sum / static_cast<float>(r.size) + r.epsilon);
  for (int64_t i = 0; i < r.size; ++i) r.out[i] = r.x[i] * inverse * r.scale[i];
  for (int64_t i = 0; i < r.size / 2 && r.cos != nullptr; ++i) {
    float &a = r.out[i], &b = r.out[i + r.size / 2];
    const float left = a * r.cos[i] - b * r.sin[i], right = b * r.cos[i] + a * r.sin[i];
    a = left;
    b = right;
  }
  for (int64_t i = 0; i < r.size; ++i) r.out[i] *= r.factor;
}

template <Float kType>
void widen(const void* in, int64_t k, float* out) {
  for (int64_t i = 0; i < k; ++i) out[i] = load_float<kType>(in, i);
}

template <Float kType>
void matvec(FloatRows w, const float* x, int64_t m, Results out) {
  for (int64_t row = 0; row < w.count; ++row) {
    for (int64_t j = 0; j < m; ++j) {
      float sum = 0;
      for (int64_t i = 0; i < w.k; ++i)
        sum += load_float<kType>(w.data, row * w.k + i) * x[j * w.k + i];
      out.data[j * out.stride + row] = sum;
    }
  }
}

}  // namespace

const KernelTable& scalar_kernels() {
  static constexpr KernelTable kTable = {
      .quantise = quantise,
      .formats = {{{unpack<Format::kQ4_0>},
                   {unpack<Format::kQ4_1>},
                   {unpack<Format::kQ5_0>},
                   {unpack<Format::kQ5_1>},
                   {unpack<Format::kQ8_0>},
                   {unpack<Format::kQ2_K>},
                   {unpack<Format::kQ3_K>},
                   {unpack<Format::kQ4_K>},
                   {unpack<Format::kQ5_K>},
                   {unpack<Format::kQ6_K>}}},
      .dot_unpacked = dot_unpacked,
      .to_f32 = to_f32,
      .widen = {widen<Float::kF32>, widen<Float::kF16>, widen<Float::kBF16>},
      .matvec = {matvec<Float::kF32>, matvec<Float::kF16>, matvec<Float::kBF16>},
      .attention = make_attention<One>(),
      .norm = norm,
      .largest = largest<One>,
  };
  return kTable;
}

}  // namespace mt::kernels
