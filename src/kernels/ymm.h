// 256-bit registers for loops.h, and what 512-bit ones share with them. Empty where the compiler
// isn't told that it may use AVX2 (cmake/rooms.cmake has each file's flags).
#pragma once

#include "kernels/kernel_table.h"

#ifdef __AVX2__

#include <immintrin.h>

#include "kernels/half_table.h"

namespace mt::kernels {
namespace {  // one copy for each file, compiled with its flags

struct Ymm {
  static constexpr int64_t kLanes = 8, kValues = 32;
  static constexpr int kTile = 8, kRowsTogether = 2;
  using Bytes = __m256i;
  using Floats = __m256;
  struct Chunk {
    Bytes q;
    Floats scale;
  };
  struct Scales {
    __m256 low, high;
  };
  struct Pair {
    __m256i even, odd;  // of each four bytes the first and third, the second and fourth
  };

  // --- floats
  static Floats zero() { return _mm256_setzero_ps(); }
  static Floats load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Floats v) { _mm256_storeu_ps(p, v); }
  static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static float sum(Floats v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  static Floats all_lanes(float v) { return _mm256_set1_ps(v); }
  static Floats max(Floats a, Floats b) { return _mm256_max_ps(a, b); }
  static Floats max_keeping_nan(Floats x, Floats least) { return _mm256_max_ps(least, x); }
  static Floats round(Floats v) {
    return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // n is an integer of at least -126.
  static Floats times_power_of_2(Floats v, Floats n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
  }
  static uint16_t bits_16(const void* p) {
    uint16_t bits;
    __builtin_memcpy(&bits, p, 2);
    return bits;
  }
  static float half(const void* p) { return half_table.value.data()[bits_16(p)]; }

  template <Float kType>
  static Floats load_as(const void* in, int64_t i) {
    if constexpr (kType == Float::kF32) return load(static_cast<const float*>(in) + i);
    if constexpr (kType == Float::kS8) {
      const void* bytes = static_cast<const int8_t*>(in) + i;
      const __m128i eight = _mm_loadl_epi64(static_cast<const __m128i*>(bytes));
      return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight));
    }
    const __m128i bits =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const uint16_t*>(in) + i));
    if constexpr (kType == Float::kF16) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  template <Float kType>
  static float one_as(const void* in, int64_t i) {
    if constexpr (kType == Float::kF32) return static_cast<const float*>(in)[i];
    const auto* p = static_cast<const uint16_t*>(in) + i;
    if constexpr (kType == Float::kF16) return half(p);
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(uint32_t{*p} << 16))));
  }

  // --- bytes
  static Bytes load_bytes(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  static void store(uint8_t* p, Bytes v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
  static Bytes all(int v) { return _mm256_set1_epi8(static_cast<char>(v)); }
  static Bytes subtract(Bytes a, int v) { return _mm256_sub_epi8(a, all(v)); }

  template <bool kUnsigned>
  static Pair split(Bytes q) {
    if constexpr (kUnsigned) {
      return {_mm256_and_si256(q, _mm256_set1_epi16(255)), _mm256_srli_epi16(q, 8)};
    } else {
      return {_mm256_srai_epi16(_mm256_slli_epi16(q, 8), 8), _mm256_srai_epi16(q, 8)};
    }
  }

  static Bytes load_two(const uint8_t* a, const uint8_t*) { return load_bytes(a); }
  // A block whose last 16 bytes are low nibbles of 16 values and high ones of the next 16.
  template <int64_t kBytes>
  static Chunk nibbles(const uint8_t* a, const uint8_t* b) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a + kBytes - 16));
    return {_mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(v, 4), v), all(15)), halves(a, b)};
  }
  static Bytes add_16_where(Bytes q, const uint8_t* a, const uint8_t*) {
    int bits;
    __builtin_memcpy(&bits, a, 4);
    const __m256i byte_of =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit_of = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201U));
    const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), byte_of);
    const __m256i hit = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit_of), bit_of);
    return _mm256_add_epi8(q, _mm256_and_si256(hit, all(16)));
  }
  static Floats halves(const uint8_t* a, const uint8_t*) { return _mm256_set1_ps(half(a)); }

  // Chunk 0..7 of a block of 256: rows of 32, two of them in 32 bytes' low and high nibbles.
  static Bytes nibble_rows(const uint8_t* q, int chunk) {
    const Bytes v = load_bytes(q + 32 * (chunk / 2));
    return _mm256_and_si256(_mm256_srli_epi16(v, 4 * (chunk % 2)), all(15));
  }
  static Bytes add_16_where_row(Bytes q, const uint8_t* bits, int chunk) {
    const Bytes bit = all(1 << chunk);
    const Bytes hit = _mm256_cmpeq_epi8(_mm256_and_si256(load_bytes(bits), bit), bit);
    return _mm256_add_epi8(q, _mm256_and_si256(hit, all(16)));
  }
  static Bytes six_bits(const uint8_t* low, const uint8_t* high, int chunk) {
    const int upper = chunk / 4, row = chunk % 4;
    const Bytes l = _mm256_srli_epi16(load_bytes(low + 64 * upper + 32 * (row % 2)), row / 2 * 4);
    const Bytes h = _mm256_srli_epi16(load_bytes(high + 32 * upper), 2 * row);
    return _mm256_or_si256(_mm256_and_si256(l, all(15)),
                           _mm256_slli_epi16(_mm256_and_si256(h, all(3)), 4));
  }

  // --- 16 scales of a block of 256
  static Floats to_floats(__m256i v, float factor) {
    return _mm256_mul_ps(_mm256_cvtepi32_ps(v), _mm256_set1_ps(factor));
  }
  static Scales scales_u8(uint64_t eight, float factor) {
    const __m128i v = _mm_cvtsi64_si128(static_cast<int64_t>(eight));
    const __m128i twice = _mm_unpacklo_epi8(v, v);
    return {to_floats(_mm256_cvtepu8_epi32(twice), factor),
            to_floats(_mm256_cvtepu8_epi32(_mm_srli_si128(twice, 8)), factor)};
  }
  static Scales scales_s8(const uint8_t* p, float factor) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {to_floats(_mm256_cvtepi8_epi32(v), factor),
            to_floats(_mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)), factor)};
  }
  static Scales load_scales(const float* p) { return {load(p), load(p + 8)}; }
  static void store(float* p, Scales s) {
    store(p, s.low);
    store(p + 8, s.high);
  }
  static Floats fma(Scales a, const float* b, Floats c) {
    return fma(a.low, load(b), fma(a.high, load(b + 8), c));
  }
  static Floats expand(Scales s, int chunk) {
    const __m256i lanes = _mm256_add_epi32(_mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1),
                                           _mm256_set1_epi32(2 * (chunk % 4)));
    return _mm256_permutevar8x32_ps(chunk < 4 ? s.low : s.high, lanes);
  }

  // Products and sums rounded apart, as the formats define them.
  static Floats values_8(const uint8_t* q, float scale) {
    const __m128i v = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(q));
    return to_floats(_mm256_cvtepi8_epi32(v), scale);
  }
  static void values_16(const uint8_t* q, float scale, float* out) {
    store(out, values_8(q, scale));
    store(out + 8, values_8(q + 8, scale));
  }
  static void values_16(const uint8_t* q, float scale, float minimum, float* out) {
    store(out, add(values_8(q, scale), _mm256_set1_ps(minimum)));
    store(out + 8, add(values_8(q + 8, scale), _mm256_set1_ps(minimum)));
  }
};

struct ActivationScale {  // of 32 of them; both 0 where they are too small for an inverse
  float scale, inverse;
};
inline ActivationScale scale_of(const float* x) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i largest = _mm256_setzero_si256();
  for (int i = 0; i < 32; i += 8) {
    const __m256i bits = Ymm::load_bytes(x + i);
    largest = _mm256_max_epu32(largest, _mm256_and_si256(bits, magnitude));
  }
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
  if (_mm_cvtsi128_si32(m) >= 0x7f800000) return {__builtin_nanf(""), 0};  // infinity or NaN
  const float scale = _mm_cvtss_f32(_mm_castsi128_ps(m)) / kLargestActivation;
  if (scale < 1.17549435e-38F) return {0, 0};
  return {scale, 1.0F / scale};
}

inline __m256i rounded_16(const float* x, float inverse) {
  const __m256 by = _mm256_set1_ps(inverse);
  const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(Ymm::load(x), by));
  const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(Ymm::load(x + 8), by));
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
}

inline int sum_of_16(__m256i q) {
  const __m256i pairs = _mm256_madd_epi16(q, _mm256_set1_epi16(1));
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

// Of 32 integers those of even index, then those of odd, in order.
inline void store_even_then_odd(std::byte* evens, std::byte* odds, __m256i a, __m256i b) {
  const auto even = [](__m256i q) { return _mm256_srai_epi32(_mm256_slli_epi32(q, 16), 16); };
  const auto odd = [](__m256i q) { return _mm256_srai_epi32(q, 16); };
  const auto join = [](__m256i low, __m256i high) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
  };
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(evens), join(even(a), even(b)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(odds), join(odd(a), odd(b)));
}

// A row of activations for packed rows; `put` stores 32 integers.
template <class Put>
inline void quantise_steps(const float* x, int64_t k, ActivationStep* out, const Put& put) {
  for (int64_t at = 0; at < k; at += 32, ++out) {
    const ActivationScale step = scale_of(x + at);
    __m256i a = _mm256_setzero_si256(), b = a;
    if (step.inverse != 0) {
      a = rounded_16(x + at, step.inverse);
      b = rounded_16(x + at + 16, step.inverse);
    }
    put(out->integers, a, b);
    const int first = sum_of_16(a), second = sum_of_16(b);
    out->scale = step.scale;
    out->minus_sum[0] = -first;
    out->minus_sum[1] = -second;
    out->minus_sum[2] = -(first + second);
    out->sum[0] = step.scale * static_cast<float>(first);
    out->sum[1] = step.scale * static_cast<float>(second);
  }
}

inline void quantise_row(const float* x, Activations out, int64_t row) {
  float* last_scale = out.scale(row, chunk_count(out.k) - 1);
  float* last_16 = out.per_16(row, block_count(out.k) - 1);
  for (int i = 0; i < 16; ++i) last_scale[i] = last_16[i] = 0;
  if (out.k % kChunk != 0) {
    int16_t* last = out.q(row, chunk_count(out.k) - 1);
    for (int64_t i = 0; i < kChunk; ++i) last[i] = 0;
  }
  for (int64_t at = 0; at < out.k; at += 32) {
    const ActivationScale step = scale_of(x + at);
    __m256i a = _mm256_setzero_si256(), b = a;
    if (step.inverse != 0) {
      a = rounded_16(x + at, step.inverse);
      b = rounded_16(x + at + 16, step.inverse);
    }
    auto* q = reinterpret_cast<std::byte*>(out.q(row, at / kChunk) + at % kChunk / 2);
    store_even_then_odd(q, q + 2 * Activations::kOdd, a, b);
    Ymm::store(out.scale(row, at / kChunk) + at % kChunk / 4, _mm256_set1_ps(step.scale));
    float* sums = out.per_16(row, at / kBlock) + at % kBlock / 16;
    sums[0] = step.scale * static_cast<float>(sum_of_16(a));
    sums[1] = step.scale * static_cast<float>(sum_of_16(b));
  }
}

}  // namespace
}  // namespace mt::kernels

#endif  // __AVX2__
