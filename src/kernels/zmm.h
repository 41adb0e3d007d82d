// 512-bit registers for the loops of avx512.cc and avx512_packed.cc.
#pragma once

#ifdef __AVX512VNNI__

#include <immintrin.h>

#include "kernels/ymm.h"

namespace mt::kernels {
namespace {

struct Zmm {
  static constexpr int64_t kLanes = 16, kValues = 64;
  static constexpr int kTile = 8, kRowsTogether = 4;
  using Bytes = __m512i;
  using Floats = __m512;
  using Scales = __m512;
  struct Chunk {
    Bytes q;
    Floats scale;
  };

  // --- floats
  static Floats zero() { return _mm512_setzero_ps(); }
  static Floats load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
  static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static float sum(Floats v) {
    return Ymm::sum(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)));
  }
  static Floats all_lanes(float v) { return _mm512_set1_ps(v); }
  static Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
  static Floats max_keeping_nan(Floats x, Floats least) { return _mm512_max_ps(least, x); }
  static Floats round(Floats v) {
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static Floats times_power_of_2(Floats v, Floats n) { return _mm512_scalef_ps(v, n); }
  static float half(const void* p) { return Ymm::half(p); }

  template <Float kType>
  static Floats load_as(const void* in, int64_t i) {
    if constexpr (kType == Float::kF32) return load(static_cast<const float*>(in) + i);
    if constexpr (kType == Float::kS8) {
      const void* bytes = static_cast<const int8_t*>(in) + i;
      const __m128i sixteen = _mm_loadu_si128(static_cast<const __m128i*>(bytes));
      return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sixteen));
    }
    const __m256i bits = Ymm::load_bytes(static_cast<const uint16_t*>(in) + i);
    if constexpr (kType == Float::kF16) return _mm512_cvtph_ps(bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  template <Float kType>
  static float one_as(const void* in, int64_t i) {
    return Ymm::one_as<kType>(in, i);
  }

  // --- bytes
  static Bytes load_bytes(const void* p) { return _mm512_loadu_si512(p); }
  static void store(uint8_t* p, Bytes v) { _mm512_storeu_si512(p, v); }
  static Bytes all(int v) { return _mm512_set1_epi8(static_cast<char>(v)); }
  static Bytes subtract(Bytes a, int v) { return _mm512_sub_epi8(a, all(v)); }
  static Bytes two(__m256i low, __m256i high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  static Bytes twice(const uint8_t* p) { return _mm512_broadcast_i64x4(Ymm::load_bytes(p)); }

  static Bytes load_two(const uint8_t* a, const uint8_t* b) {
    return two(Ymm::load_bytes(a), Ymm::load_bytes(b));
  }
  template <int64_t kBytes>
  static Chunk nibbles(const uint8_t* a, const uint8_t* b) {
    const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a + kBytes - 16));
    const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b + kBytes - 16));
    const Bytes v = _mm512_mask_broadcast_i64x2(_mm512_broadcast_i64x2(low), 0xf0, high);
    return {_mm512_and_si512(_mm512_mask_srli_epi16(v, 0xff00ff00U, v, 4), all(15)), halves(a, b)};
  }
  static Bytes add_16_where(Bytes q, const uint8_t* a, const uint8_t* b) {
    uint32_t low, high;
    __builtin_memcpy(&low, a, 4);
    __builtin_memcpy(&high, b, 4);
    return _mm512_mask_add_epi8(q, low | static_cast<uint64_t>(high) << 32, q, all(16));
  }
  static Floats halves(const uint8_t* a, const uint8_t* b) {
    const __m128 high = _mm_set_ss(half(b));
    return _mm512_mask_broadcastss_ps(all_lanes(half(a)), 0xff00, high);
  }

  // Chunk 0..3 of a block of 256: two rows of 32.
  static Bytes nibble_rows(const uint8_t* q, int chunk) {
    const Bytes v = twice(q + 32 * chunk);
    return _mm512_and_si512(_mm512_mask_srli_epi16(v, 0xffff0000U, v, 4), all(15));
  }
  static Bytes add_16_where_row(Bytes q, const uint8_t* bits, int chunk) {
    const Bytes bit = two(Ymm::all(1 << (2 * chunk)), Ymm::all(2 << (2 * chunk)));
    return _mm512_mask_add_epi8(q, _mm512_test_epi8_mask(twice(bits), bit), q, all(16));
  }
  static Bytes six_bits(const uint8_t* low, const uint8_t* high, int chunk) {
    const int upper = chunk / 2;
    const bool odd = chunk % 2 != 0;
    const Bytes l = _mm512_srli_epi16(load_bytes(low + 64 * upper), odd ? 4 : 0);
    Bytes h = twice(high + 32 * upper);
    // The rows' two bits go to bits 4 and 5.
    h = odd ? _mm512_srlv_epi16(h, two(_mm256_setzero_si256(), _mm256_set1_epi16(2)))
            : _mm512_sllv_epi16(h, two(_mm256_set1_epi16(4), _mm256_set1_epi16(2)));
    return _mm512_or_si512(_mm512_and_si512(l, all(15)), _mm512_and_si512(h, all(0x30)));
  }

  // --- 16 scales of a block of 256
  static Floats to_floats(__m512i v, float factor) {
    return _mm512_mul_ps(_mm512_cvtepi32_ps(v), _mm512_set1_ps(factor));
  }
  static Scales scales_u8(uint64_t eight, float factor) {
    const __m128i v = _mm_cvtsi64_si128(static_cast<int64_t>(eight));
    return to_floats(_mm512_cvtepu8_epi32(_mm_unpacklo_epi8(v, v)), factor);
  }
  static Scales scales_s8(const uint8_t* p, float factor) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return to_floats(_mm512_cvtepi8_epi32(v), factor);
  }
  static Scales load_scales(const float* p) { return load(p); }
  static Floats fma(Scales a, const float* b, Floats c) { return fma(a, load(b), c); }
  static Floats expand(Scales s, int chunk) {
    const __m512i lanes =
        _mm512_add_epi32(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
                         _mm512_set1_epi32(4 * chunk));
    return _mm512_permutexvar_ps(lanes, s);
  }

  static Floats values(const uint8_t* q, float scale) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(q));
    return to_floats(_mm512_cvtepi8_epi32(v), scale);
  }
  static void values_16(const uint8_t* q, float scale, float* out) { store(out, values(q, scale)); }
  static void values_16(const uint8_t* q, float scale, float minimum, float* out) {
    store(out, add(values(q, scale), _mm512_set1_ps(minimum)));
  }

  // --- products, as in avx_vnni.cc
  struct Pair {
    __m512i even, odd;
  };
  template <bool kUnsigned>
  static Pair split(Bytes q) {
    if constexpr (kUnsigned) {
      return {_mm512_and_si512(q, _mm512_set1_epi16(255)), _mm512_srli_epi16(q, 8)};
    } else {
      return {_mm512_srai_epi16(_mm512_slli_epi16(q, 8), 8), _mm512_srai_epi16(q, 8)};
    }
  }
  static Floats dot(Pair w, const int16_t* x) {
    const Bytes even = _mm512_dpwssd_epi32(_mm512_setzero_si512(), w.even, load_bytes(x));
    const Bytes both = _mm512_dpwssd_epi32(even, w.odd, load_bytes(x + Activations::kOdd));
    return _mm512_cvtepi32_ps(both);
  }
  static void quantise(const float* x, Activations out, int64_t row) { quantise_row(x, out, row); }
};

// One chunk of 64 columns: pair[j] has values 4 j to 4 j + 3 of each row, scale[g] their scale for
// group g of 16 (or g of 32, in the first two).
struct PanelChunk {
  Zmm::Pair pair[16];
  __m512 scale[4];
  __m512 minimum[4];  // of each 16
};

}  // namespace
}  // namespace mt::kernels

#endif  // __AVX512VNNI__
