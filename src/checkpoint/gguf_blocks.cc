#include "checkpoint/gguf_blocks.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "checkpoint/gguf_quantise.h"

// Every product and sum below is one float32 operation in the order that ggml defines, so that the
// values equal its own to the last bit.
static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian");

namespace mt::checkpoint {
namespace {

template <typename T>
T load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof(T));
  return v;
}

float half(const std::byte* p) { return Float16{load<uint16_t>(p)}.to_float(); }
uint32_t u8(const std::byte* p, int i) { return static_cast<uint32_t>(p[i]); }
int s8(const std::byte* p, int i) { return static_cast<int8_t>(p[i]); }
float to_f(uint32_t v) { return static_cast<float>(static_cast<int>(v)); }
float to_f(int v) { return static_cast<float>(v); }

void f32(const std::byte* in, int64_t n, float* out) {
  std::memcpy(out, in, static_cast<size_t>(n) * sizeof(float));
}
void f16(const std::byte* in, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = half(in + 2 * i);
}
void bf16(const std::byte* in, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = BFloat16{load<uint16_t>(in + 2 * i)}.to_float();
}
void f64(const std::byte* in, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(load<double>(in + 8 * i));
}

// The 32-element formats: a scale, perhaps a minimum, perhaps a fifth bit each, then 16 bytes whose
// low nibbles are elements 0..15 and high nibbles 16..31.
template <bool kMinimum, bool kFifthBit>
void nibbles(const std::byte* in, int64_t blocks, float* out) {
  constexpr int kHeader = kMinimum ? 4 : 2;
  constexpr int kBytes = kHeader + (kFifthBit ? 4 : 0) + 16;
  constexpr int kZero = kMinimum ? 0 : (kFifthBit ? 16 : 8);
  for (int64_t b = 0; b < blocks; ++b, in += kBytes, out += 32) {
    const float scale = half(in);
    const float minimum = kMinimum ? half(in + 2) : 0.0F;
    const uint32_t fifth = kFifthBit ? load<uint32_t>(in + kHeader) : 0;
    const std::byte* q = in + kBytes - 16;
    for (int i = 0; i < 16; ++i) {
      const uint32_t low = (u8(q, i) & 15U) | (((fifth >> i) & 1U) << 4);
      const uint32_t high = (u8(q, i) >> 4) | (((fifth >> (i + 16)) & 1U) << 4);
      const float x = to_f(static_cast<int>(low) - kZero) * scale;
      const float y = to_f(static_cast<int>(high) - kZero) * scale;
      out[i] = kMinimum ? x + minimum : x;
      out[i + 16] = kMinimum ? y + minimum : y;
    }
  }
}

void q8_0(const std::byte* in, int64_t blocks, float* out) {
  for (int64_t b = 0; b < blocks; ++b, in += 34, out += 32) {
    const float scale = half(in);
    for (int i = 0; i < 32; ++i) out[i] = to_f(s8(in + 2, i)) * scale;
  }
}

// The 256-element formats come in two halves of 128; in each, a byte's 2-bit fields belong to
// elements 32 apart, and every 16 elements have a scale of their own.
void q2_k(const std::byte* in, int64_t blocks, float* out) {
  for (int64_t b = 0; b < blocks; ++b, in += 84) {
    const std::byte* q = in + 16;
    const float scale = half(in + 80);
    const float minimum = half(in + 82);
    for (int group = 0; group < 16; ++group, out += 16) {
      const uint32_t sm = u8(in, group);
      const float s = scale * to_f(sm & 15U);
      const float m = minimum * to_f(sm >> 4);
      const std::byte* bytes = q + 32 * (group / 8) + 16 * (group % 2);
      const int shift = 2 * ((group % 8) / 2);
      for (int i = 0; i < 16; ++i) out[i] = s * to_f((u8(bytes, i) >> shift) & 3U) - m;
    }
  }
}

// Sixteen 6-bit scales in 12 bytes: low nibbles in the first 8, two high bits each in the last 4.
int q3_scale(const std::byte* p, int group) {
  const uint32_t low = (u8(p, group % 8) >> (group < 8 ? 0 : 4)) & 15U;
  const uint32_t high = (u8(p + 8, group % 4) >> (2 * (group / 4))) & 3U;
  return static_cast<int>(low | (high << 4)) - 32;
}

void q3_k(const std::byte* in, int64_t blocks, float* out) {
  for (int64_t b = 0; b < blocks; ++b, in += 110) {
    const std::byte* high = in;
    const std::byte* q = in + 32;
    const float scale = half(in + 108);
    for (int group = 0; group < 16; ++group, out += 16) {
      const float s = scale * to_f(q3_scale(in + 96, group));
      const int lane = 16 * (group % 2);
      const std::byte* bytes = q + 32 * (group / 8) + lane;
      const int shift = 2 * ((group % 8) / 2);
      const int bit = group / 2;  // of the high-bit byte
      for (int i = 0; i < 16; ++i) {
        const int low = static_cast<int>((u8(bytes, i) >> shift) & 3U);
        const int third = static_cast<int>((u8(high, lane + i) >> bit) & 1U);
        out[i] = s * to_f(low + 4 * third - 4);
      }
    }
  }
}

struct ScaleMin {
  float scale, minimum;
};

// Eight 6-bit scales and minima in 12 bytes: groups 0..3 lie whole in bytes 0..3 and 4..7; groups
// 4..7 have their low nibbles in bytes 8..11 and their high bits on top of the former.
ScaleMin k4_scale(const std::byte* p, int group) {
  if (group < 4) return {to_f(u8(p, group) & 63U), to_f(u8(p, group + 4) & 63U)};
  const uint32_t low = u8(p, group + 4);
  return {to_f((low & 15U) | ((u8(p, group - 4) >> 6) << 4)),
          to_f((low >> 4) | ((u8(p, group) >> 6) << 4))};
}

template <bool kFifthBit>
void k45(const std::byte* in, int64_t blocks, float* out) {
  constexpr int kBytes = 16 + (kFifthBit ? 32 : 0) + 128;
  for (int64_t b = 0; b < blocks; ++b, in += kBytes) {
    const float scale = half(in);
    const float minimum = half(in + 2);
    const std::byte* fifth = in + 16;
    const std::byte* q = in + kBytes - 128;
    for (int group = 0; group < 8; ++group, out += 32) {
      const ScaleMin sm = k4_scale(in + 4, group);
      const float s = scale * sm.scale;
      const float m = minimum * sm.minimum;
      const std::byte* bytes = q + 32 * (group / 2);
      const int shift = 4 * (group % 2);
      for (int i = 0; i < 32; ++i) {
        uint32_t v = (u8(bytes, i) >> shift) & 15U;
        if constexpr (kFifthBit) v |= ((u8(fifth, i) >> group) & 1U) << 4;
        out[i] = s * to_f(v) - m;
      }
    }
  }
}

void q6_k(const std::byte* in, int64_t blocks, float* out) {
  for (int64_t b = 0; b < blocks; ++b, in += 210) {
    const float scale = half(in + 208);
    for (int group = 0; group < 16; ++group, out += 16) {
      const int upper = group / 8;      // which 128
      const int row = (group % 8) / 2;  // which 32 of these
      const int lane = 16 * (group % 2);
      const std::byte* low = in + 64 * upper + 32 * (row % 2) + lane;
      const std::byte* high = in + 128 + 32 * upper + lane;
      const float s = scale * to_f(s8(in + 192, group));
      for (int i = 0; i < 16; ++i) {
        const uint32_t nibble = (u8(low, i) >> (row < 2 ? 0 : 4)) & 15U;
        const uint32_t top = (u8(high, i) >> (2 * row)) & 3U;
        out[i] = s * to_f(static_cast<int>(nibble | (top << 4)) - 32);
      }
    }
  }
}

constexpr DType kF = DType::kF32;
constexpr std::array kFormats = {
    BlockFormat{0, "F32", 1, 4, kF, f32},
    BlockFormat{1, "F16", 1, 2, DType::kF16, f16},
    BlockFormat{2, "Q4_0", 32, 18, kF, nibbles<false, false>, quantise_q4_0},
    BlockFormat{3, "Q4_1", 32, 20, kF, nibbles<true, false>},
    BlockFormat{6, "Q5_0", 32, 22, kF, nibbles<false, true>},
    BlockFormat{7, "Q5_1", 32, 24, kF, nibbles<true, true>},
    BlockFormat{8, "Q8_0", 32, 34, kF, q8_0, quantise_q8_0},
    BlockFormat{10, "Q2_K", 256, 84, kF, q2_k},
    BlockFormat{11, "Q3_K", 256, 110, kF, q3_k},
    BlockFormat{12, "Q4_K", 256, 144, kF, k45<false>},
    BlockFormat{13, "Q5_K", 256, 176, kF, k45<true>},
    BlockFormat{14, "Q6_K", 256, 210, kF, q6_k},
    BlockFormat{24, "I8", 1, 1, DType::kS8, nullptr},
    BlockFormat{26, "I32", 1, 4, DType::kS32, nullptr},
    BlockFormat{27, "I64", 1, 8, DType::kS64, nullptr},
    BlockFormat{28, "F64", 1, 8, DType::kF64, f64},
    BlockFormat{30, "BF16", 1, 2, DType::kBF16, bf16},
};

}  // namespace

const BlockFormat* find_block_format(uint32_t id) {
  for (const BlockFormat& format : kFormats) {
    if (format.id == id) return &format;
  }
  return nullptr;
}

const BlockFormat* find_block_format(std::string_view name) {
  for (const BlockFormat& format : kFormats) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

}  // namespace mt::checkpoint
