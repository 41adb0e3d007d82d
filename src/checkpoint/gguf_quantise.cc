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

using Steps = std::array<int32_t, kBlock>;

// Values in steps of the scale, which none leaves far; all zero for a scale of zero. Returns the
// squared error. Each loop is one that compilers turn into vectors.
float to_steps(const float* x, float scale, int32_t low, int32_t high, Steps& steps) {
  const float divisor = scale == 0 ? 1 : scale;
  for (int i = 0; i < kBlock; ++i) {
    const auto q = static_cast<int32_t>(nearest(x[i] / divisor));
    const int32_t above = q < low ? low : q;
    steps[static_cast<size_t>(i)] = above > high ? high : above;
  }
  std::array<float, kBlock> squares;
  for (int i = 0; i < kBlock; ++i) {
    const float error = x[i] - static_cast<float>(steps[static_cast<size_t>(i)]) * scale;
    squares[static_cast<size_t>(i)] = error * error;
  }
  for (size_t half = kBlock / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) squares[i] += squares[i + half];
  }
  return squares[0];
}

void put(Float16 scale, std::byte* out) { std::memcpy(out, &scale.bits, sizeof(scale.bits)); }

}  // namespace

bool quantise_q8_0(const float* in, int64_t blocks, std::byte* out) {
  for (int64_t b = 0; b < blocks; ++b, in += kBlock, out += 2 + kBlock) {
    const Float16 scale = scale_for(std::abs(extreme(in)), 127);
    if (!std::isfinite(scale.to_float())) return false;
    Steps steps{};
    to_steps(in, scale.to_float(), -127, 127, steps);
    put(scale, out);
    for (size_t i = 0; i < kBlock; ++i) {
      out[2 + i] = static_cast<std::byte>(static_cast<int8_t>(steps[i]));
    }
  }
  return true;
}

bool quantise_q4_0(const float* in, int64_t blocks, std::byte* out) {
  constexpr std::array kSteps{-8.0F, 7.0F, -7.5F, 6.5F, -7.0F, 6.0F, -8.5F, 7.5F, -6.5F, -9.0F};
  for (int64_t b = 0; b < blocks; ++b, in += kBlock, out += 2 + kBlock / 2) {
    const float largest = extreme(in);
    Float16 best_scale;
    Steps best{}, steps{};
    float least = std::numeric_limits<float>::infinity();
    for (const float reach : kSteps) {
      const Float16 scale = scale_for(largest, reach);
      if (!std::isfinite(scale.to_float())) continue;
      const float error = to_steps(in, scale.to_float(), -8, 7, steps);
      if (!(error < least)) continue;
      least = error;
      best = steps;
      best_scale = scale;
    }
    if (!std::isfinite(least)) return false;
    put(best_scale, out);
    for (size_t i = 0; i < kBlock / 2; ++i) {
      const int low = best[i] + 8, high = best[i + 16] + 8;
      out[2 + i] = static_cast<std::byte>(low | (high << 4));
    }
  }
  return true;
}

}  // namespace mt::checkpoint
