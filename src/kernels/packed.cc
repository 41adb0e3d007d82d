#include "kernels/packed.h"

#include <cstring>

namespace mt::kernels {
namespace {

// 32 values as 8 words of 4 bytes, in order and without a sign.
using Values = std::array<uint32_t, 8>;

uint32_t word(const uint8_t* p, int64_t i) {
  uint32_t out = 0;
  std::memcpy(&out, p + 4 * i, 4);
  return out;
}
// `bits` from bit `at` of each of a word's bytes.
uint32_t in_bytes(uint32_t v, int64_t at, uint32_t bits) {
  return (v >> at) & (((1U << bits) - 1) * 0x01010101U);
}
// Bit i of 4 to byte i.
uint32_t bits_to_bytes(uint32_t four) { return ((four & 15U) * 0x00204081U) & 0x01010101U; }

// How a block's bytes are laid out is told in checkpoint/gguf_blocks.cc. Values 32 `step` and on.

Values nibbles(const uint8_t* q, uint32_t fifth) {
  Values out{};
  for (uint32_t j = 0; j < 8; ++j) {
    out[j] = in_bytes(word(q, j % 4), j < 4 ? 0 : 4, 4) | bits_to_bytes(fifth >> (4 * j)) << 4;
  }
  return out;
}

Values values_of_32(Format format, const uint8_t* block) {
  switch (format) {
    case Format::kQ4_0: return nibbles(block + 2, 0);
    case Format::kQ4_1: return nibbles(block + 4, 0);
    case Format::kQ5_0: return nibbles(block + 6, word(block + 2, 0));
    case Format::kQ5_1: return nibbles(block + 8, word(block + 4, 0));
    default: break;
  }
  Values out{};  // Q8_0
  for (uint32_t j = 0; j < 8; ++j) out[j] = word(block + 2, j) ^ 0x80808080U;
  return out;
}

Values values_of_256(Format format, const uint8_t* block, int64_t step) {
  Values out{};
  const int64_t upper = step / 4, row = step % 4;
  for (uint32_t j = 0; j < 8; ++j) {
    const auto two_bits = [&](int64_t at) {
      return in_bytes(word(block + at + 32 * upper, j), 2 * row, 2);
    };
    const auto one_bit = [&](int64_t at) { return in_bytes(word(block + at, j), step, 1); };
    const auto nibble = [&](int64_t at) {
      return in_bytes(word(block + at + 32 * (step / 2), j), 4 * (step % 2), 4);
    };
    switch (format) {
      case Format::kQ2_K: out[j] = two_bits(16); break;
      case Format::kQ3_K: out[j] = two_bits(32) | one_bit(0) << 2; break;
      case Format::kQ4_K: out[j] = nibble(16); break;
      case Format::kQ5_K: out[j] = nibble(48) | one_bit(16) << 4; break;
      default: {  // Q6_K
        const uint32_t low = word(block + 64 * upper + 32 * (row % 2), j);
        out[j] = in_bytes(low, row < 2 ? 0 : 4, 4) | two_bits(128) << 4;
      }
    }
  }
  return out;
}

// Words `stride` bytes apart.
class Words {
 public:
  Words(uint8_t* to, int64_t stride) : to_(to), stride_(stride) {}
  void put(uint32_t word) {
    std::memcpy(to_, &word, 4);
    to_ += stride_;
  }

 private:
  uint8_t* to_;
  int64_t stride_;
};

void put_values(const Values& v, int bits, Words& out) {
  const auto two_bits = [&](uint32_t at) {
    for (size_t i = 0; i < 8; i += 4) {
      uint32_t word = 0;
      for (size_t j = 0; j < 4; ++j) word |= in_bytes(v[i + j], at, 2) << (2 * j);
      out.put(word);
    }
  };
  const auto one_bit = [&](uint32_t at) {
    uint32_t word = 0;
    for (size_t j = 0; j < 8; ++j) word |= in_bytes(v[j], at, 1) << j;
    out.put(word);
  };
  if (bits == 8) {
    for (const uint32_t word : v) out.put(word);
  } else if (bits >= 4) {
    for (size_t i = 0; i < 4; ++i) out.put(in_bytes(v[i], 0, 4) | in_bytes(v[4 + i], 0, 4) << 4);
    if (bits == 5) one_bit(4);
    if (bits == 6) two_bits(4);
  } else {
    two_bits(0);
    if (bits == 3) one_bit(2);
  }
}

// Where a block's head begins.
int64_t head_at(Format format) {
  if (format == Format::kQ3_K) return 96;
  return format == Format::kQ6_K ? 192 : 0;
}

void pack_block(Format format, const uint8_t* block, Words out) {
  const PackedFormat& f = packed_format(format);
  const bool q2 = format == Format::kQ2_K;  // its last head word lies at its end
  for (int64_t i = 0; i < f.head; ++i) {
    out.put(word(block + head_at(format), q2 && i == 4 ? 20 : i));
  }
  for (int64_t step = 0; step < f.elements / 32; ++step) {
    const bool one = f.elements == 32;
    put_values(one ? values_of_32(format, block) : values_of_256(format, block, step), f.bits, out);
  }
}

}  // namespace

void pack_panel(Format format, const uint8_t* rows, int64_t row_bytes, uint8_t* panel) {
  const PackedFormat& f = packed_format(format);
  const int64_t blocks = row_bytes / f.bytes;
  uint8_t* halves = panel + blocks * f.words() * 4 * kPackedRows;
  for (int64_t r = 0; r < kPackedRows; ++r) {
    for (int64_t b = 0; b < blocks; ++b) {
      const uint8_t* block = rows + r * row_bytes + b * f.bytes;
      if (f.half_at >= 0) std::memcpy(halves + 2 * (b * kPackedRows + r), block + f.half_at, 2);
      pack_block(format, block, {panel + 4 * (b * f.words() * kPackedRows + r), 4 * kPackedRows});
    }
  }
}

}  // namespace mt::kernels
