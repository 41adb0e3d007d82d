// What the tests of kernels share: random blocks and numbers, and the values they stand for.
#pragma once

#include <cmath>
#include <cstdint>
#include <ostream>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "checkpoint/gguf_blocks.h"
#include "kernels/instruction_set.h"

namespace mt::kernels {

// gtest prints a parameter, and ctest names a test by what it printed.
inline void PrintTo(InstructionSet set, std::ostream* out) { *out << name(set); }

inline const checkpoint::BlockFormat& block_format(std::string_view name) {
  return *checkpoint::find_block_format(name);
}

inline std::vector<float> random_floats(int64_t count, uint64_t seed, float size = 1) {
  std::vector<float> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) {
    const uint32_t bits = random_bits_at(random_key(seed), i);
    out[i] = size * (static_cast<float>(bits) * 0x1p-31F - 1);
  }
  return out;
}

// Where a block has 16-bit floats (scale, minimum), as offsets.
inline std::vector<size_t> half_offsets(std::string_view format) {
  if (format == "Q6_K") return {208};
  if (format == "Q3_K") return {108};
  if (format == "Q2_K") return {80, 82};
  if (format == "Q4_0" || format == "Q5_0" || format == "Q8_0" || format == "F16") return {0};
  if (format == "BF16") return {};
  return {0, 2};
}

// Every bit random, but for the exponents of the 16-bit floats: 2^-7 to 2^-5, of either sign.
inline std::vector<uint8_t> random_blocks(const checkpoint::BlockFormat& format, int64_t blocks,
                                          uint64_t seed) {
  std::vector<uint8_t> out(static_cast<size_t>(blocks * format.bytes));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<uint8_t>(random_bits_at(random_key(seed), i));
  }
  for (size_t at = 0; at < out.size(); at += static_cast<size_t>(format.bytes)) {
    for (const size_t offset : half_offsets(format.name)) {
      uint8_t& high = out[at + offset + 1];
      high = static_cast<uint8_t>((high & 0x87U) | 0x20U);
    }
    if (format.name == "BF16") out[at + 1] = static_cast<uint8_t>((out[at + 1] & 0x80U) | 0x3dU);
  }
  return out;
}

inline std::vector<float> decoded(const checkpoint::BlockFormat& format,
                                  const std::vector<uint8_t>& blocks) {
  const int64_t count = static_cast<int64_t>(blocks.size()) / format.bytes;
  std::vector<float> out(static_cast<size_t>(count * format.elements));
  format.to_float(reinterpret_cast<const std::byte*>(blocks.data()), count, out.data());
  return out;
}

}  // namespace mt::kernels
