// Products with packed rows (packed.h) for AVX-512 with VNNI: a register holds 4 values of each of
// 16 rows, as bytes without sign. An activation's two bytes meet them apart, and their sums are
// joined after 16 or 32 values; what was added to make the bytes positive is taken off by the sum
// of the activations.
#include <immintrin.h>

#include "kernels/loops.h"
#include "kernels/packed.h"
#include "kernels/zmm.h"

namespace mt::kernels {
namespace {

// 32 values of 16 rows: q[j] has values 4 j to 4 j + 3.
struct Step {
  __m512i q[8];
  __m512 scale[2], minimum[2];  // of each 16 values, or of all 32 the first
};

using Words = const uint8_t*;  // of a block of 16 rows
[[gnu::always_inline]] inline __m512i word(Words block, int i) {
  return Zmm::load_bytes(block + 64 * i);
}
template <int kShift>  // to the left, or where negative to the right
[[gnu::always_inline]] inline __m512i shift(__m512i v) {
  if constexpr (kShift > 0) return _mm512_slli_epi32(v, kShift);
  if constexpr (kShift < 0) return _mm512_srli_epi32(v, -kShift);
  return v;
}
// The bits of `low` that kLow has, and of `high` those that kAll has more, in every byte.
template <int kLow, int kAll>
[[gnu::always_inline]] inline __m512i join(__m512i low, __m512i high) {
  const __m512i either = _mm512_ternarylogic_epi32(Zmm::all(kLow), low, high, 0xca);
  return _mm512_and_si512(either, Zmm::all(kAll));
}
[[gnu::always_inline]] inline __m512 low_halves(__m512i v) {
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}
[[gnu::always_inline]] inline __m512 high_halves(__m512i v) {
  return low_halves(_mm512_srli_epi32(v, 16));
}
[[gnu::always_inline]] inline __m512 halves(const uint8_t* p) {
  return _mm512_cvtph_ps(Ymm::load_bytes(p));
}
[[gnu::always_inline]] inline __m512i and_all(__m512i v, int bits) {
  return _mm512_and_si512(v, _mm512_set1_epi32(bits));
}

// --- values: `w` has the words of 32 of them (packed.h).

// V[kI] and V[4 + kI].
template <int kBits, int kI>
[[gnu::always_inline]] inline void load_value(Words w, __m512i (&q)[8]) {
  const __m512i nibbles = word(w, kI);
  if constexpr (kBits == 4) {
    q[kI] = _mm512_and_si512(nibbles, Zmm::all(15));
    q[4 + kI] = _mm512_and_si512(shift<-4>(nibbles), Zmm::all(15));
  } else if constexpr (kBits == 5) {
    const __m512i fifth = word(w, 4);
    q[kI] = join<15, 31>(nibbles, shift<4 - kI>(fifth));
    q[4 + kI] = join<15, 31>(shift<-4>(nibbles), shift<-kI>(fifth));
  } else if constexpr (kBits == 6) {
    q[kI] = join<15, 63>(nibbles, shift<4 - 2 * kI>(word(w, 4)));
    q[4 + kI] = join<15, 63>(shift<-4>(nibbles), shift<4 - 2 * kI>(word(w, 5)));
  } else if constexpr (kBits == 2) {
    q[kI] = _mm512_and_si512(shift<-2 * kI>(word(w, 0)), Zmm::all(3));
    q[4 + kI] = _mm512_and_si512(shift<-2 * kI>(word(w, 1)), Zmm::all(3));
  } else {
    q[kI] = join<3, 7>(shift<-2 * kI>(word(w, 0)), shift<2 - kI>(word(w, 2)));
    q[4 + kI] = join<3, 7>(shift<-2 * kI>(word(w, 1)), shift<-2 - kI>(word(w, 2)));
  }
}

template <int kBits>
[[gnu::always_inline]] inline void load_values(Words w, __m512i (&q)[8]) {
  if constexpr (kBits == 8) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) q[j] = word(w, j);
  } else {
    load_value<kBits, 0>(w, q);
    load_value<kBits, 1>(w, q);
    load_value<kBits, 2>(w, q);
    load_value<kBits, 3>(w, q);
  }
}

// --- formats: kZero is what is taken off each value, kGroups how many scales 32 values have. A
// Head is what a block's steps of 32 values share.

struct Scale {
  __m512 scale, minimum;
};

template <Format kOf, int kZeroOf>
struct BlocksOf32 {
  static constexpr Format kFormat = kOf;
  static constexpr int kZero = kZeroOf, kGroups = 1;
  using Head = Scale;
  [[gnu::always_inline]] static Head head(Words w, const uint8_t* half) {
    if constexpr (!has_minimum(kOf)) return {halves(half), _mm512_setzero_ps()};
    return {low_halves(word(w, 0)), high_halves(word(w, 0))};
  }
  template <int>
  [[gnu::always_inline]] static void scales(Words, const Head& h, Step& out) {
    out.scale[0] = h.scale;
    out.minimum[0] = h.minimum;
  }
};

[[gnu::always_inline]] inline Scale scale_and_minimum(__m512i both) {
  return {low_halves(both), _mm512_xor_ps(high_halves(both), _mm512_set1_ps(-0.0F))};
}
[[gnu::always_inline]] inline __m512 times(__m512i integers, __m512 scale) {
  return _mm512_mul_ps(_mm512_cvtepi32_ps(integers), scale);
}

template <Format kOf>  // Q4_K or Q5_K
struct PackedK45 {
  static constexpr Format kFormat = kOf;
  static constexpr int kZero = 0, kGroups = 1;
  using Head = Scale;
  [[gnu::always_inline]] static Head head(Words w, const uint8_t*) {
    return scale_and_minimum(word(w, 0));
  }
  template <int kS>
  [[gnu::always_inline]] static void scales(Words w, const Head& h, Step& out) {
    constexpr int kByte = 8 * (kS % 4);
    const __m512i a = word(w, 1), b = word(w, 2), c = word(w, 3);
    if constexpr (kS < 4) {
      out.scale[0] = times(and_all(shift<-kByte>(a), 63), h.scale);
      out.minimum[0] = times(and_all(shift<-kByte>(b), 63), h.minimum);
    } else {
      const __m512i high_a = and_all(shift<-kByte - 2>(a), 0x30),
                    high_b = and_all(shift<-kByte - 2>(b), 0x30);
      const __m512i scale = _mm512_or_si512(and_all(shift<-kByte>(c), 15), high_a),
                    minimum = _mm512_or_si512(and_all(shift<-kByte - 4>(c), 15), high_b);
      out.scale[0] = times(scale, h.scale);
      out.minimum[0] = times(minimum, h.minimum);
    }
  }
};

// Byte kByte of every lane, with its sign.
template <int kByte>
[[gnu::always_inline]] inline __m512i signed_byte(__m512i v) {
  return _mm512_srai_epi32(shift<24 - 8 * kByte>(v), 24);
}

struct PackedQ6_K {
  static constexpr Format kFormat = Format::kQ6_K;
  static constexpr int kZero = 32, kGroups = 2;
  using Head = __m512;
  [[gnu::always_inline]] static Head head(Words, const uint8_t* half) { return halves(half); }
  template <int kS>
  [[gnu::always_inline]] static void scales(Words w, const Head& h, Step& out) {
    constexpr int kByte = 2 * (kS % 2);
    out.scale[0] = times(signed_byte<kByte>(word(w, kS / 2)), h);
    out.scale[1] = times(signed_byte<kByte + 1>(word(w, kS / 2)), h);
  }
};

struct PackedQ2_K {
  static constexpr Format kFormat = Format::kQ2_K;
  static constexpr int kZero = 0, kGroups = 2;
  using Head = Scale;
  [[gnu::always_inline]] static Head head(Words w, const uint8_t*) {
    return scale_and_minimum(word(w, 4));
  }
  template <int kS>
  [[gnu::always_inline]] static void scales(Words w, const Head& h, Step& out) {
    group<0, 16 * (kS % 2)>(word(w, kS / 2), h, out);
    group<1, 16 * (kS % 2) + 8>(word(w, kS / 2), h, out);
  }
  template <int kG, int kBit>
  [[gnu::always_inline]] static void group(__m512i of, const Head& h, Step& out) {
    out.scale[kG] = times(and_all(shift<-kBit>(of), 15), h.scale);
    out.minimum[kG] = times(and_all(shift<-kBit - 4>(of), 15), h.minimum);
  }
};

struct PackedQ3_K {
  static constexpr Format kFormat = Format::kQ3_K;
  static constexpr int kZero = 4, kGroups = 2;
  using Head = __m512;
  [[gnu::always_inline]] static Head head(Words, const uint8_t* half) { return halves(half); }
  template <int kS>
  [[gnu::always_inline]] static void scales(Words w, const Head& h, Step& out) {
    out.scale[0] = group<2 * kS>(w, h);
    out.scale[1] = group<2 * kS + 1>(w, h);
  }
  template <int kG>
  [[gnu::always_inline]] static __m512 group(Words w, const Head& h) {
    constexpr int kByte = 8 * (kG % 4);
    const __m512i low = and_all(shift<-kByte - (kG < 8 ? 0 : 4)>(word(w, kG % 8 / 4)), 15);
    const __m512i high = and_all(shift<-kByte - 2 * (kG / 4)>(word(w, 2)), 3);
    const __m512i both = _mm512_or_si512(low, _mm512_slli_epi32(high, 4));
    return times(_mm512_sub_epi32(both, _mm512_set1_epi32(32)), h);
  }
};

// --- walking a panel

constexpr int64_t kFarAhead = 8192;

template <class F>
constexpr const PackedFormat& kIs = kPackedFormats[static_cast<size_t>(F::kFormat)];
template <class F>
constexpr int64_t kSteps = kIs<F>.elements / 32;

// Gives `sink` each of a panel's steps of 32 values, by number. `ahead`: memory to ask for.
template <class F, int kS, class Sink>
[[gnu::always_inline]] inline void steps_from(Words words, const typename F::Head& head,
                                              const uint8_t* ahead, int64_t first, Sink& sink) {
  if constexpr (kS < kSteps<F>) {
    // A few lines at a time, as more would wait for each other; and so far ahead that they come to
    // the second cache only.
    constexpr int64_t kLines = (4 * kPackedRows * kIs<F>.words() + 2 * kPackedRows + 63) / 64;
#pragma GCC unroll 8
    for (int64_t i = kLines * kS / kSteps<F>; i < kLines * (kS + 1) / kSteps<F>; ++i) {
      __builtin_prefetch(ahead + 64 * i, 0, 2);
    }
    Step step;
    F::template scales<kS>(words, head, step);
    load_values<kIs<F>.bits>(words + 64 * (kIs<F>.head + kIs<F>.bits * kS), step.q);
    sink.step(first + kS, step);
    steps_from<F, kS + 1>(words, head, ahead, first, sink);
  }
}

template <class F, class Sink>
[[gnu::always_inline]] inline void walk_panel(const uint8_t* panel, int64_t k, Sink& sink) {
  constexpr int64_t kWordBytes = 4 * kPackedRows * kIs<F>.words();
  const int64_t blocks = k / kIs<F>.elements;
  const uint8_t* halves = panel + blocks * kWordBytes;
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* words = panel + b * kWordBytes;
    const uint8_t* half = halves + 2 * kPackedRows * b;
    // The whole panel is read at one pace, so that far enough ahead is the next one.
    const uint8_t* ahead = words + 2 * kPackedRows * b + kFarAhead;
    steps_from<F, 0>(words, F::head(words, half), ahead, b * kSteps<F>, sink);
  }
}

// --- products

// sum += the four products of w's unsigned bytes with the signed ones at x, in each lane. Written
// out as avx512.cc's add_products is.
[[gnu::always_inline]] inline void add_products(__m512i& sum, __m512i w, const int8_t* x) {
  using Four = int8_t[4];
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*reinterpret_cast<const Four*>(x)));
}

constexpr int log2_of(int v) { return v <= 1 ? 0 : 1 + log2_of(v / 2); }

// Sums of q[kFirst] to q[kLast - 1] times 4 activations each.
template <int kZero, int kFirst, int kLast>
[[gnu::always_inline]] inline __m512 products(const Step& w, const ActivationStep& x,
                                              int32_t minus_sum) {
  __m512i high = _mm512_setzero_si512(), low = high;
  if constexpr (kZero != 0) low = shift<log2_of(kZero)>(_mm512_set1_epi32(minus_sum));
#pragma GCC unroll 8
  for (int j = kFirst; j < kLast; ++j) {
    add_products(high, w.q[j], x.high + 4 * j);
    add_products(low, w.q[j], x.low + 4 * j);
  }
  return _mm512_cvtepi32_ps(_mm512_add_epi32(shift<8>(high), low));
}

template <class F, int kM>
struct PackedDot {  // a sink
  const ActivationStep* x;
  int64_t row_steps;
  __m512 sum[kM];
  [[gnu::always_inline]] void step(int64_t s, const Step& w) {
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) {
      const ActivationStep& a = x[m * row_steps + s];
      const __m512 by = _mm512_set1_ps(a.scale);
      if constexpr (F::kGroups == 1) {
        const __m512 p = products<F::kZero, 0, 8>(w, a, a.minus_sum[2]);
        sum[m] = _mm512_fmadd_ps(p, _mm512_mul_ps(w.scale[0], by), sum[m]);
        if constexpr (has_minimum(F::kFormat)) {
          const __m512 all = _mm512_set1_ps(a.sum[0] + a.sum[1]);
          sum[m] = _mm512_fmadd_ps(w.minimum[0], all, sum[m]);
        }
      } else {
        const __m512 p = products<F::kZero, 0, 4>(w, a, a.minus_sum[0]);
        const __m512 r = products<F::kZero, 4, 8>(w, a, a.minus_sum[1]);
        sum[m] = _mm512_fmadd_ps(p, _mm512_mul_ps(w.scale[0], by), sum[m]);
        sum[m] = _mm512_fmadd_ps(r, _mm512_mul_ps(w.scale[1], by), sum[m]);
        if constexpr (has_minimum(F::kFormat)) {
          sum[m] = _mm512_fmadd_ps(w.minimum[0], _mm512_set1_ps(a.sum[0]), sum[m]);
          sum[m] = _mm512_fmadd_ps(w.minimum[1], _mm512_set1_ps(a.sum[1]), sum[m]);
        }
      }
    }
  }
};

template <class F, int kM>
void dot_panel(const uint8_t* panel, int64_t k, const ActivationStep* x, Results out) {
  PackedDot<F, kM> sink{x, k / 32, {}};
#pragma GCC unroll 4
  for (int m = 0; m < kM; ++m) sink.sum[m] = _mm512_setzero_ps();
  walk_panel<F>(panel, k, sink);
#pragma GCC unroll 4
  for (int m = 0; m < kM; ++m) Zmm::store(out.data + m * out.stride, sink.sum[m]);
}

template <class F>
void dot_packed(PackedRows w, const ActivationStep* x, int64_t m, Results out) {
  for (int64_t p = 0; p < w.panels; ++p) {
    const uint8_t* panel = w.data + p * w.panel_bytes;
    const auto at = [&](int64_t first) {
      return Results{out.data + first * out.stride + p * kPackedRows, out.stride};
    };
    int64_t first = 0;
    for (; m - first >= 4; first += 4) {
      dot_panel<F, 4>(panel, w.k, x + first * (w.k / 32), at(first));
    }
    for (; m - first >= 2; first += 2) {
      dot_panel<F, 2>(panel, w.k, x + first * (w.k / 32), at(first));
    }
    if (first < m) dot_panel<F, 1>(panel, w.k, x + first * (w.k / 32), at(first));
  }
}

// --- to the panels that many rows of activations meet (avx512.cc)

template <class F>
struct ToChunks {  // a sink
  PanelChunk* chunks;
  [[gnu::always_inline]] void step(int64_t s, const Step& w) {
    PanelChunk& to = chunks[s / 2];
    const int64_t part = s % 2;
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      to.pair[part * 8 + j] = Zmm::split<false>(Zmm::subtract(w.q[j], F::kZero));
    }
    if constexpr (F::kGroups == 1) {
      to.scale[part] = w.scale[0];
    } else {
      to.scale[2 * part] = w.scale[0];
      to.scale[2 * part + 1] = w.scale[1];
    }
    if constexpr (has_minimum(F::kFormat)) {
      to.minimum[2 * part] = w.minimum[0];
      to.minimum[2 * part + 1] = w.minimum[F::kGroups - 1];
    }
  }
};

template <class F>
void prepare_packed(const uint8_t* packed, int64_t k, std::byte* panel) {
  ToChunks<F> sink{reinterpret_cast<PanelChunk*>(panel)};
  walk_panel<F>(packed, k, sink);
  if (k / 32 % 2 == 0) return;
  // What lies beyond k only has to be finite.
  Step none;
  for (__m512i& q : none.q) q = _mm512_setzero_si512();
  for (int g = 0; g < 2; ++g) none.scale[g] = none.minimum[g] = _mm512_setzero_ps();
  sink.step(k / 32, none);
}

template <class F>
constexpr PackedKernels kernels_of() {
  return {dot_packed<F>, prepare_packed<F>};
}

// Bytes of 16-bit integers, in order.
[[gnu::always_inline]] inline void store_bytes(int8_t* to, __m256i a, __m256i b) {
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
  static constexpr std::array<PackedKernels, kFormats> kKernels = {
      kernels_of<BlocksOf32<Format::kQ4_0, 8>>(),
      kernels_of<BlocksOf32<Format::kQ4_1, 0>>(),
      kernels_of<BlocksOf32<Format::kQ5_0, 16>>(),
      kernels_of<BlocksOf32<Format::kQ5_1, 0>>(),
      kernels_of<BlocksOf32<Format::kQ8_0, 128>>(),
      kernels_of<PackedQ2_K>(),
      kernels_of<PackedQ3_K>(),
      kernels_of<PackedK45<Format::kQ4_K>>(),
      kernels_of<PackedK45<Format::kQ5_K>>(),
      kernels_of<PackedQ6_K>()};
  return kKernels;
}

void avx512_quantise_packed(const float* x, int64_t k, ActivationStep* out) {
  for (int64_t at = 0; at < k; at += 32, ++out) {
    const ActivationScale step = scale_of(x + at);
    __m256i a = _mm256_setzero_si256(), b = a;
    if (step.inverse != 0) {
      a = rounded_16(x + at, step.inverse);
      b = rounded_16(x + at + 16, step.inverse);
    }
    store_bytes(out->high, high_byte(a), high_byte(b));
    store_bytes(out->low, low_byte(a), low_byte(b));
    const int first = sum_of_16(a), second = sum_of_16(b);
    out->scale = step.scale;
    out->minus_sum[0] = -first;
    out->minus_sum[1] = -second;
    out->minus_sum[2] = -(first + second);
    out->sum[0] = step.scale * static_cast<float>(first);
    out->sum[1] = step.scale * static_cast<float>(second);
  }
}

}  // namespace mt::kernels
