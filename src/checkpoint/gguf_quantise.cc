#include "checkpoint/gguf_quantise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/dtype.h"

namespace mt::checkpoint {
namespace {

constexpr int kBlock = 32;

// The value of the largest magnitude; NaN if one isn't finite.
float extreme(const float* x) {
  float largest = 0;
  bool finite = true;
  for (int i = 0; i < kBlock; ++i) {
    finite = finite && std::abs(x[i]) <= std::numeric_limits<float>::max();
    if (std::abs(x[i]) > std::abs(largest)) largest = x[i];
  }
  return finite ? largest : std::numeric_limits<float>::quiet_NaN();
}

// value / steps as a float16: among the smallest of these, whose neighbours lie far apart, rounded
// up where `value` would fall more than half a step beyond the last one.
Float16 scale_for(float value, float steps) {
  Float16 scale = Float16::from_float(value / steps);
  const float reach = (std::abs(steps) + 0.5F) * std::abs(scale.to_float());
  if (std::abs(value) > reach) ++scale.bits;
  return scale;
}

// To the nearest whole number, for |x| < 2^22. Needs no instruction beyond SSE2.
float nearest(float x) {
  constexpr float kShift = 12582912.0F;  // 1.5 * 2^23
  return (x + kShift) - kShift;
}

// Values in steps of the scale; all zero for a scale of zero. Returns the squared error.
float to_steps(const float* x, float scale, float low, float high, float* steps) {
  const float divisor = scale == 0 ? 1 : scale;
  std::array<float, 8> sums{};  // so that the loop may run in vectors
  for (int i = 0; i < kBlock; i += 8) {
    for (int j = 0; j < 8; ++j) {
      const float v = x[i + j];
      const float limited = std::min(std::max(v / divisor, low - 1), high + 1);
      const float q = std::min(std::max(nearest(limited), low), high);
      const float error = v - q * scale;
      steps[i + j] = q;
      sums[static_cast<size_t>(j)] += error * error;
    }
  }
  float sum = 0;
  for (const float s : sums) sum += s;
  return sum;
}

void put(Float16 scale, std::byte* out) { std::memcpy(out, &scale.bits, sizeof(scale.bits)); }

}  // namespace

bool quantise_q8_0(const float* in, int64_t blocks, std::byte* out) {
  for (int64_t b = 0; b < blocks; ++b, in += kBlock, out += 2 + kBlock) {
    const Float16 scale = scale_for(std::abs(extreme(in)), 127);
    if (!std::isfinite(scale.to_float())) return false;
    std::array<float, kBlock> steps{};
    to_steps(in, scale.to_float(), -127, 127, steps.data());
    put(scale, out);
    for (size_t i = 0; i < kBlock; ++i) {
      out[2 + i] = static_cast<std::byte>(static_cast<int8_t>(static_cast<int>(steps[i])));
    }
  }
  return true;
}

bool quantise_q4_0(const float* in, int64_t blocks, std::byte* out) {
  constexpr std::array kSteps{-8.0F, 7.0F, -7.5F, 6.5F, -7.0F, 6.0F, -8.5F, 7.5F, -6.5F, -9.0F};
  for (int64_t b = 0; b < blocks; ++b, in += kBlock, out += 2 + kBlock / 2) {
    const float largest = extreme(in);
    Float16 best_scale;
    std::array<float, kBlock> best{}, steps{};
    float least = std::numeric_limits<float>::infinity();
    for (const float reach : kSteps) {
      const Float16 scale = scale_for(largest, reach);
      if (!std::isfinite(scale.to_float())) continue;
      const float error = to_steps(in, scale.to_float(), -8, 7, steps.data());
      if (!(error < least)) continue;
      least = error;
      best = steps;
      best_scale = scale;
    }
    if (!std::isfinite(least)) return false;
    put(best_scale, out);
    for (size_t i = 0; i < kBlock / 2; ++i) {
      const int low = static_cast<int>(best[i]) + 8, high = static_cast<int>(best[i + 16]) + 8;
      out[2 + i] = static_cast<std::byte>(low | (high << 4));
    }
  }
  return true;
}

}  // namespace mt::checkpoint
