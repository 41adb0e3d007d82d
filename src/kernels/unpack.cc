#include "kernels/unpack.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"

// How a block's bytes are laid out is told in checkpoint/gguf_blocks.cc.
namespace mt::kernels {
namespace {

// One block: values q, and for each 16 of them value = scale * q + minimum.
struct Block {
  int8_t* q;
  float* scale;
  float* minimum;
};

float half(const uint8_t* p) {
  uint16_t bits = 0;
  std::memcpy(&bits, p, 2);
  return Float16{bits}.to_float();
}
float to_f(int v) { return static_cast<float>(v); }
int8_t to_s8(int v) { return static_cast<int8_t>(v); }

void q8_0(const uint8_t* in, Block out) {
  std::memcpy(out.q, in + 2, 32);
  std::fill_n(out.scale, 2, half(in));
  std::fill_n(out.minimum, 2, 0.0F);
}

template <bool kMinimum, bool kFifthBit>
void nibbles(const uint8_t* in, Block out) {
  constexpr int kHeader = kMinimum ? 4 : 2;
  constexpr int kZero = kMinimum ? 0 : (kFifthBit ? 16 : 8);
  uint32_t fifth = 0;
  if (kFifthBit) std::memcpy(&fifth, in + kHeader, 4);
  const uint8_t* q = in + kHeader + (kFifthBit ? 4 : 0);
  for (int i = 0; i < 32; ++i) {
    const int nibble = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
    out.q[i] = to_s8((nibble | static_cast<int>((fifth >> i) & 1U) << 4) - kZero);
  }
  std::fill_n(out.scale, 2, half(in));
  std::fill_n(out.minimum, 2, kMinimum ? half(in + 2) : 0.0F);
}

void q2_k(const uint8_t* in, Block out) {
  const float scale = half(in + 80), minimum = half(in + 82);
  for (int group = 0; group < 16; ++group) {
    out.scale[group] = scale * to_f(in[group] & 15);
    out.minimum[group] = -(minimum * to_f(in[group] >> 4));
    const uint8_t* bytes = in + 16 + 32 * (group / 8) + 16 * (group % 2);
    const int shift = 2 * ((group % 8) / 2);
    for (int i = 0; i < 16; ++i) out.q[16 * group + i] = to_s8((bytes[i] >> shift) & 3);
  }
}

void q3_k(const uint8_t* in, Block out) {
  const uint8_t* scales = in + 96;
  const float scale = half(in + 108);
  for (int group = 0; group < 16; ++group) {
    const int low = (scales[group % 8] >> (group < 8 ? 0 : 4)) & 15;
    const int high = (scales[8 + group % 4] >> (2 * (group / 4))) & 3;
    out.scale[group] = scale * to_f((low | high << 4) - 32);
    out.minimum[group] = 0;
    const int lane = 16 * (group % 2), shift = 2 * ((group % 8) / 2);
    const uint8_t* bytes = in + 32 + 32 * (group / 8) + lane;
    for (int i = 0; i < 16; ++i) {
      const int third = (in[lane + i] >> (group / 2)) & 1;
      out.q[16 * group + i] = to_s8(((bytes[i] >> shift) & 3) + 4 * third - 4);
    }
  }
}

template <bool kFifthBit>
void k45(const uint8_t* in, Block out) {
  const float scale = half(in), minimum = half(in + 2);
  const uint8_t* p = in + 4;
  const uint8_t* q = in + 16 + (kFifthBit ? 32 : 0);
  for (int group = 0; group < 8; ++group) {
    const bool whole = group < 4;
    const int s = whole ? p[group] & 63 : (p[group + 4] & 15) | (p[group - 4] >> 6) << 4;
    const int m = whole ? p[group + 4] & 63 : (p[group + 4] >> 4) | (p[group] >> 6) << 4;
    std::fill_n(out.scale + 2 * group, 2, scale * to_f(s));
    std::fill_n(out.minimum + 2 * group, 2, -(minimum * to_f(m)));
    for (int i = 0; i < 32; ++i) {
      int v = (q[32 * (group / 2) + i] >> (4 * (group % 2))) & 15;
      if (kFifthBit) v |= ((in[16 + i] >> group) & 1) << 4;
      out.q[32 * group + i] = to_s8(v);
    }
  }
}

void q6_k(const uint8_t* in, Block out) {
  const float scale = half(in + 208);
  for (int group = 0; group < 16; ++group) {
    const int upper = group / 8, row = (group % 8) / 2, lane = 16 * (group % 2);
    const uint8_t* low = in + 64 * upper + 32 * (row % 2) + lane;
    const uint8_t* high = in + 128 + 32 * upper + lane;
    out.scale[group] = scale * to_f(static_cast<int8_t>(in[192 + group]));
    out.minimum[group] = 0;
    for (int i = 0; i < 16; ++i) {
      const int nibble = (low[i] >> (row < 2 ? 0 : 4)) & 15;
      out.q[16 * group + i] = to_s8((nibble | ((high[i] >> (2 * row)) & 3) << 4) - 32);
    }
  }
}

struct Unpacker {
  int64_t elements, bytes;
  void (*unpack)(const uint8_t*, Block);
};
constexpr std::array<Unpacker, kFormats> kUnpackers{{
    {32, 18, nibbles<false, false>},
    {32, 20, nibbles<true, false>},
    {32, 22, nibbles<false, true>},
    {32, 24, nibbles<true, true>},
    {32, 34, q8_0},
    {256, 84, q2_k},
    {256, 110, q3_k},
    {256, 144, k45<false>},
    {256, 176, k45<true>},
    {256, 210, q6_k},
}};

}  // namespace

void unpack_row(Format format, const uint8_t* blocks, Rows out, int64_t row) {
  const Unpacker& u = kUnpackers[static_cast<size_t>(format)];
  // What lies beyond k only has to be finite.
  std::fill_n(out.scale(row, chunk_count(out.k) - 1), 16, 0.0F);
  std::fill_n(out.per_16(row, block_count(out.k) - 1), 16, 0.0F);
  int8_t q[256];
  float scale[16], minimum[16];
  for (int64_t at = 0; at < out.k; at += u.elements, blocks += u.bytes) {
    u.unpack(blocks, {q, scale, minimum});
    for (int64_t i = 0; i < u.elements; i += 16) {
      const int64_t chunk = (at + i) / kChunk, within = (at + i) % kChunk;
      std::memcpy(out.q(row, chunk) + within, q + i, 16);
      std::fill_n(out.scale(row, chunk) + within / 4, 4, scale[i / 16]);
      out.per_16(row, (at + i) / kBlock)[(at + i) % kBlock / 16] = minimum[i / 16];
    }
  }
}

}  // namespace mt::kernels
