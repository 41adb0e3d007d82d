// Packed rows (packed_loops.h) and panels for 256-bit registers: a panel's 16 rows as two registers
// of 8, values and activations as 16-bit integers. V says how pairs are multiplied and added:
// V::add_pairs(sum, w, x) adds the two products of each 32-bit lane.
#pragma once

#ifdef __AVX2__

#include "kernels/loops.h"
#include "kernels/packed_loops.h"
#include "kernels/ymm.h"

namespace mt::kernels {
namespace {

// 64 columns of 8 rows; a panel has two of them for each 64 columns, of its first rows and the
// rest.
struct YmmPanelChunk {
  Ymm::Pair pair[16];
  __m256 scale[4];
  __m256 minimum[4];
};
constexpr int64_t kYmmParts = kPackedRows / Ymm::kLanes;

// Two 16-bit activations in every lane.
[[gnu::always_inline]] inline __m256i spread_pair(const std::byte* two) {
  int32_t both;
  __builtin_memcpy(&both, two, 4);
  return _mm256_set1_epi32(both);
}

constexpr int ymm_log2_of(int v) { return v <= 1 ? 0 : 1 + ymm_log2_of(v / 2); }

template <class V>
struct PackedYmm : V {
  using Bytes = typename V::Bytes;
  using Floats = typename V::Floats;
  using PanelChunk = YmmPanelChunk;

  static Bytes and_(Bytes a, Bytes b) { return _mm256_and_si256(a, b); }
  static Bytes or_(Bytes a, Bytes b) { return _mm256_or_si256(a, b); }
  static Bytes all_words(int v) { return _mm256_set1_epi32(v); }
  // Where a mask's bit is 1, `a`.
  static Bytes select(Bytes mask, Bytes a, Bytes b) {
    return or_(and_(mask, a), _mm256_andnot_si256(mask, b));
  }
  template <int kShift>  // of each lane, to the left, or where negative to the right
  static Bytes shift(Bytes v) {
    if constexpr (kShift > 0) return _mm256_slli_epi32(v, kShift);
    if constexpr (kShift < 0) return _mm256_srli_epi32(v, -kShift);
    return v;
  }
  template <int kByte>  // of every lane, with its sign
  static Bytes signed_byte(Bytes v) {
    return _mm256_srai_epi32(shift<24 - 8 * kByte>(v), 24);
  }
  static Bytes subtract_words(Bytes a, int v) { return _mm256_sub_epi32(a, all_words(v)); }
  static Floats as_floats(Bytes v) { return _mm256_cvtepi32_ps(v); }
  static Floats negative(Floats v) { return _mm256_xor_ps(v, _mm256_set1_ps(-0.0F)); }
  static Floats low_halves(Bytes v) { return high_halves(shift<16>(v)); }
  static Floats high_halves(Bytes v) {
    const Bytes words = shift<-16>(v);
    const Bytes in_order = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(in_order));
  }
  static Floats halves_at(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }

  // An ActivationStep's integers of even index come first (quantise_packed below).
  template <int kZero, int kFirst, int kLast, int kM>
  [[gnu::always_inline]] static void products(const Bytes (&q)[8], const ActivationStep* x,
                                              int64_t row_steps, Floats (&out)[kM]) {
    Bytes sum[kM];
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) {
      sum[m] = _mm256_setzero_si256();
      if constexpr (kZero != 0) {
        const int32_t minus = x[m * row_steps].minus_sum[kSumOf<kFirst, kLast>];
        sum[m] = shift<ymm_log2_of(kZero)>(all_words(minus));
      }
    }
#pragma GCC unroll 8
    for (int j = kFirst; j < kLast; ++j) {
      const auto w = V::template split<true>(q[j]);
#pragma GCC unroll 4
      for (int m = 0; m < kM; ++m) {
        const std::byte* two = x[m * row_steps].integers + 4 * j;
        V::add_pairs(sum[m], w.even, spread_pair(two));
        V::add_pairs(sum[m], w.odd, spread_pair(two + 32));
      }
    }
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) out[m] = as_floats(sum[m]);
  }
};

inline void quantise_packed(const float* x, int64_t k, ActivationStep* out) {
  quantise_steps(x, k, out, [](std::byte* to, __m256i a, __m256i b) {
    store_even_then_odd(to, to + 32, a, b);
  });
}

// --- panels: kM rows of x with both parts of a panel, so that an activation that is spread meets
// 16 rows.

template <class V, int kGroup, int kM>
[[gnu::always_inline]] inline void add_chunk(const YmmPanelChunk* w, const std::byte* x,
                                             __m256 (&sum)[kM][kYmmParts]) {
  constexpr int kLanesOfGroup = kGroup / 4;
  for (int g = 0; g < kChunk / kGroup; ++g) {
    __m256i product[kM][kYmmParts];
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) product[m][0] = product[m][1] = _mm256_setzero_si256();
    for (int j = g * kLanesOfGroup; j < (g + 1) * kLanesOfGroup; ++j) {
      const __m256i even[2] = {w[0].pair[j].even, w[1].pair[j].even};
#pragma GCC unroll 4
      for (int m = 0; m < kM; ++m) {
        const __m256i two = spread_pair(x + m * Activations::kChunkBytes + 4 * j);
        V::add_pairs(product[m][0], even[0], two);
        V::add_pairs(product[m][1], even[1], two);
      }
      const __m256i odd[2] = {w[0].pair[j].odd, w[1].pair[j].odd};
#pragma GCC unroll 4
      for (int m = 0; m < kM; ++m) {
        const std::byte* at = x + m * Activations::kChunkBytes + 2 * Activations::kOdd + 4 * j;
        const __m256i two = spread_pair(at);
        V::add_pairs(product[m][0], odd[0], two);
        V::add_pairs(product[m][1], odd[1], two);
      }
    }
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) {
      const std::byte* scales = x + m * Activations::kChunkBytes + 2 * kChunk;
      const auto by = _mm256_set1_ps(reinterpret_cast<const float*>(scales)[g * kLanesOfGroup]);
#pragma GCC unroll 2
      for (int part = 0; part < 2; ++part) {
        const __m256 scale = _mm256_mul_ps(w[part].scale[g], by);
        sum[m][part] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(product[m][part]), scale, sum[m][part]);
      }
    }
  }
}

template <int kM>
[[gnu::always_inline]] inline void add_minima(const YmmPanelChunk* w, const Activations& x,
                                              int64_t first, int64_t chunk,
                                              __m256 (&sum)[kM][kYmmParts]) {
#pragma GCC unroll 4
  for (int m = 0; m < kM; ++m) {
    const float* sums = x.per_16(first + m, chunk / 4) + chunk % 4 * 4;
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      const __m256 all = _mm256_set1_ps(sums[g]);
      sum[m][0] = _mm256_fmadd_ps(w[0].minimum[g], all, sum[m][0]);
      sum[m][1] = _mm256_fmadd_ps(w[1].minimum[g], all, sum[m][1]);
    }
  }
}

template <class V, int kGroup>
void panel_tile(const YmmPanelChunk* chunks, bool minimum, const Activations& x, int64_t first,
                Extent wanted, Results out) {
  constexpr int kM = Activations::kTogether;
  __m256 sum[kM][kYmmParts];
#pragma GCC unroll 4
  for (int m = 0; m < kM; ++m) sum[m][0] = sum[m][1] = _mm256_setzero_ps();
  for (int64_t c = 0; c < chunk_count(x.k); ++c) {
    add_chunk<V, kGroup, kM>(chunks + c * kYmmParts, x.chunk(first, c), sum);
    if (minimum) add_minima<kM>(chunks + c * kYmmParts, x, first, c, sum);
  }
  for (int64_t m = 0; m < kM && first + m < wanted.rows; ++m) {
    float* to = out.data + (first + m) * out.stride;
    if (wanted.columns == kPackedRows) {
      Ymm::store(to, sum[m][0]);
      Ymm::store(to + Ymm::kLanes, sum[m][1]);
      continue;
    }
    alignas(32) float all[kPackedRows];
    Ymm::store(all, sum[m][0]);
    Ymm::store(all + Ymm::kLanes, sum[m][1]);
    __builtin_memcpy(to, all, static_cast<size_t>(wanted.columns) * sizeof(float));
  }
}

template <class V>
void dot_panels(const Panels& panels, Activations x, Extent wanted, Results out) {
  const auto* chunks = reinterpret_cast<const YmmPanelChunk*>(panels.data);
  const auto tile = panels.by_16 ? panel_tile<V, 16> : panel_tile<V, 32>;
  for (int64_t first = 0; first < x.count; first += Activations::kTogether) {
    for (int64_t p = 0; p < panels.count; ++p) {
      const int64_t left = wanted.columns - p * kPackedRows;
      tile(chunks + p * chunk_count(x.k) * kYmmParts, panels.minimum, x, first,
           {wanted.rows, left < kPackedRows ? left : kPackedRows},
           {out.data + p * kPackedRows, out.stride});
    }
  }
}

// Rows that are not packed, word by word: each is used by many rows of x.
inline void prepare_panel(const UnpackedRows& rows, std::byte* panel) {
  auto* chunks = reinterpret_cast<YmmPanelChunk*>(panel);
  const Rows& w = rows.w;
  const int64_t groups = rows.by_16 ? 4 : 2;
  for (int64_t c = 0; c < chunk_count(w.k); ++c) {
    for (int64_t part = 0; part < kYmmParts; ++part) {
      YmmPanelChunk& to = chunks[c * kYmmParts + part];
      alignas(32) uint8_t words[kChunk / 4][4 * Ymm::kLanes];
      for (int64_t lane = 0; lane < Ymm::kLanes; ++lane) {
        const int64_t row = part * Ymm::kLanes + lane;
        const uint8_t* q = w.q(row, c);
        for (int64_t j = 0; j < kChunk / 4; ++j) {
          __builtin_memcpy(words[j] + 4 * lane, q + 4 * j, 4);
        }
        for (int64_t g = 0; g < groups; ++g) {
          reinterpret_cast<float*>(&to.scale[g])[lane] = w.scale(row, c)[g * 16 / groups];
        }
        for (int64_t g = 0; rows.minimum && g < 4; ++g) {
          reinterpret_cast<float*>(&to.minimum[g])[lane] = w.per_16(row, c / 4)[c % 4 * 4 + g];
        }
      }
      for (int64_t j = 0; j < kChunk / 4; ++j) {
        to.pair[j] = Ymm::split<false>(Ymm::load_bytes(words[j]));
      }
    }
  }
}

template <class V>
constexpr KernelTable make_ymm_table() {
  KernelTable table = make_table<V>();
  table.panel_rows = kPackedRows;
  table.panel_chunk_bytes = kYmmParts * sizeof(YmmPanelChunk);
  table.prepare_panel = prepare_panel;
  table.dot_panels = dot_panels<V>;
  table.packed = make_packed_kernels<PackedYmm<V>>();
  table.quantise_packed = quantise_packed;
  return table;
}

}  // namespace
}  // namespace mt::kernels

#endif  // __AVX2__
