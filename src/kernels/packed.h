// Rows of GGUF blocks laid out for products with a few rows of activations: 16 rows side by side, a
// row to a 32-bit lane of a register, so that lanes sum whole blocks and no sum runs across them.
//
// A panel holds kPackedRows rows in as many bytes as they had, as 32-bit words: word w of block b
// of row r is word (b * words + w) * 16 + r of the panel. Formats whose blocks are not whole words
// have a 16-bit float each that comes after all words: that of block b of row r at 16-bit word
// b * 16 + r. So memory is read in order.
// A block's words are, first, its head as it is in the file (scales and minima), then 32 values at
// a time, of which V[j] are values 4 j to 4 j + 3, a byte each, made positive where the format has
// negative ones:
//   8 bits   V[0] ... V[7]
//   low 4    four words, the i-th with V[i] in the low halves of its bytes, V[4 + i] in the high
//   2 bits   (the low 2 of 2 and 3, the high 2 of 6) two words, the i-th with V[4 i + j] at bit 2 j
//            of its bytes
//   1 bit    (the high one of 3 and 5) one word, with V[j] at bit j of its bytes
#pragma once

#include <array>
#include <cstdint>

#include "kernels/kernel_table.h"

namespace mt::kernels {

constexpr int64_t kPackedRows = 16;

struct PackedFormat {
  int64_t elements = 0, bytes = 0;  // of a block
  int64_t head = 0;                 // words
  int64_t half_at = -1;             // where the lone float was; -1: none
  int bits = 0;                     // of a value

  constexpr int64_t words() const { return head + elements / 32 * bits; }
};
inline constexpr std::array<PackedFormat, kFormats> kPackedFormats{{
    {32, 18, 0, 0, 4},      // Q4_0
    {32, 20, 1, -1, 4},     // Q4_1
    {32, 22, 0, 0, 5},      // Q5_0
    {32, 24, 1, -1, 5},     // Q5_1
    {32, 34, 0, 0, 8},      // Q8_0
    {256, 84, 5, -1, 2},    // Q2_K: scales and minima, then the two floats
    {256, 110, 3, 108, 3},  // Q3_K
    {256, 144, 4, -1, 4},   // Q4_K: the two floats, then scales and minima
    {256, 176, 4, -1, 5},   // Q5_K: the same
    {256, 210, 4, 208, 6},  // Q6_K
}};
constexpr const PackedFormat& packed_format(Format format) {
  return kPackedFormats[static_cast<size_t>(format)];
}

// kPackedRows rows of row_bytes bytes (whole blocks) to one panel, as many bytes as they take.
void pack_panel(Format format, const uint8_t* rows, int64_t row_bytes, uint8_t* panel);

// In a file of its own, compiled for AVX-512; where the compiler has it (instruction_set.h).
const std::array<PackedKernels, kFormats>& avx512_packed_kernels();
void avx512_quantise_packed(const float* x, int64_t k, ActivationStep* out);

}  // namespace mt::kernels
