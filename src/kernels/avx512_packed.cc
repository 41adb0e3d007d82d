// Products with packed rows (packed_loops.h) for AVX-512 with VNNI: a register holds 4 values of
// each of 16 rows, as bytes without sign. An activation's two bytes meet them apart, and their sums
// are joined after 16 or 32 values; what was added to make the bytes positive is taken off by the
// sum of the activations.
#include <immintrin.h>

#include "kernels/packed_loops.h"
#include "kernels/zmm.h"

namespace mt::kernels {
namespace {

// An ActivationStep has 32 signed high bytes here, then 32 signed low ones.
[[gnu::always_inline]] inline const int8_t* high_bytes(const ActivationStep& x) {
  return reinterpret_cast<const int8_t*>(x.integers);
}
[[gnu::always_inline]] inline const int8_t* low_bytes(const ActivationStep& x) {
  return high_bytes(x) + 32;
}

// sum += the four products of w's unsigned bytes with the signed ones at x, in each lane. Written
// out as avx512.cc's add_products is.
[[gnu::always_inline]] inline void add_products(__m512i& sum, __m512i w, const int8_t* x) {
  using Four = int8_t[4];
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*reinterpret_cast<const Four*>(x)));
}

constexpr int log2_of(int v) { return v <= 1 ? 0 : 1 + log2_of(v / 2); }

struct PackedZmm : Zmm {
  using PanelChunk = kernels::PanelChunk;

  static Bytes and_(Bytes a, Bytes b) { return _mm512_and_si512(a, b); }
  static Bytes or_(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }
  static Bytes all_words(int v) { return _mm512_set1_epi32(v); }
  // Where a mask's bit is 1, `a`.
  static Bytes select(Bytes mask, Bytes a, Bytes b) {
    return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
  }
  template <int kShift>  // of each lane, to the left, or where negative to the right
  static Bytes shift(Bytes v) {
    if constexpr (kShift > 0) return _mm512_slli_epi32(v, kShift);
    if constexpr (kShift < 0) return _mm512_srli_epi32(v, -kShift);
    return v;
  }
  template <int kByte>  // of every lane, with its sign
  static Bytes signed_byte(Bytes v) {
    return _mm512_srai_epi32(shift<24 - 8 * kByte>(v), 24);
  }
  static Bytes subtract_words(Bytes a, int v) { return _mm512_sub_epi32(a, all_words(v)); }
  static Floats as_floats(Bytes v) { return _mm512_cvtepi32_ps(v); }
  static Floats negative(Floats v) { return _mm512_xor_ps(v, _mm512_set1_ps(-0.0F)); }
  static Floats low_halves(Bytes v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }
  static Floats high_halves(Bytes v) { return low_halves(_mm512_srli_epi32(v, 16)); }
  static Floats halves_at(const uint8_t* p) { return _mm512_cvtph_ps(Ymm::load_bytes(p)); }

  template <int kZero, int kFirst, int kLast, int kM>
  [[gnu::always_inline]] static void products(const Bytes (&q)[8], const ActivationStep* x,
                                              int64_t row_steps, Floats (&out)[kM]) {
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) {
      const ActivationStep& a = x[m * row_steps];
      Bytes high = _mm512_setzero_si512(), low = high;
      if constexpr (kZero != 0) {
        low = shift<log2_of(kZero)>(all_words(a.minus_sum[kSumOf<kFirst, kLast>]));
      }
#pragma GCC unroll 8
      for (int j = kFirst; j < kLast; ++j) {
        add_products(high, q[j], high_bytes(a) + 4 * j);
        add_products(low, q[j], low_bytes(a) + 4 * j);
      }
      out[m] = as_floats(_mm512_add_epi32(shift<8>(high), low));
    }
  }
};

// Bytes of 16-bit integers, in order.
[[gnu::always_inline]] inline void store_bytes(std::byte* to, __m256i a, __m256i b) {
  const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes);
}
[[gnu::always_inline]] inline __m256i low_byte(__m256i v) {
  return _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8);
}
[[gnu::always_inline]] inline __m256i high_byte(__m256i v) {
  return _mm256_srai_epi16(_mm256_sub_epi16(v, low_byte(v)), 8);
}

}  // namespace

const std::array<PackedKernels, kFormats>& avx512_packed_kernels() {
  static constexpr std::array<PackedKernels, kFormats> kKernels = make_packed_kernels<PackedZmm>();
  return kKernels;
}

void avx512_quantise_packed(const float* x, int64_t k, ActivationStep* out) {
  quantise_steps(x, k, out, [](std::byte* to, __m256i a, __m256i b) {
    store_bytes(to, high_byte(a), high_byte(b));
    store_bytes(to + 32, low_byte(a), low_byte(b));
  });
}

}  // namespace mt::kernels
