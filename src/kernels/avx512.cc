// AVX-512 (F, BW, DQ, VL) with VNNI: two blocks of 32 values in a register, and panels.
#include <immintrin.h>

#include "kernels/instruction_set.h"
#include "kernels/loops.h"
#include "kernels/packed.h"
#include "kernels/zmm.h"

namespace mt::kernels {
namespace {

// --- panels: 16 weight rows, a row to a 32-bit lane, so that a lane sums a whole group of 16 or 32
// products before it meets its scale.

constexpr int64_t kPanel = 16;

// rows[i] to columns: lane i of register j becomes lane j of register i.
[[gnu::always_inline]] inline void transpose(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Now r[4 a + j] has, in quarter q, column 4 q + j of rows 4 a to 4 a + 3.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i a = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88);
    const __m512i b = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
    const __m512i c = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd);
    const __m512i d = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
    t[j] = _mm512_shuffle_i32x4(a, b, 0x88);
    t[4 + j] = _mm512_shuffle_i32x4(c, d, 0x88);
    t[8 + j] = _mm512_shuffle_i32x4(a, b, 0xdd);
    t[12 + j] = _mm512_shuffle_i32x4(c, d, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

template <int kGroup>
[[gnu::always_inline]] inline void load_chunk(const Rows& w, int64_t chunk, PanelChunk& out) {
  __m512i r[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = Zmm::load_bytes(w.q(i, chunk));
  transpose(r);
  const __m512i row = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i at = _mm512_slli_epi32(row, 5);  // a row's chunk takes 32 floats
#pragma GCC unroll 4
  for (int g = 0; g < 64 / kGroup; ++g) {
    out.scale[g] = _mm512_i32gather_ps(at, w.scale(0, chunk) + g * kGroup / 4, 4);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) out.pair[i] = Zmm::split<false>(r[i]);
}

// sum += the two products of 16-bit numbers in each lane of w with the two at x. Written out
// because g++ would load and spread x in an instruction of its own, and copy the sum.
[[gnu::always_inline]] inline void add_products(__m512i& sum, __m512i w, const std::byte* x) {
  using Two = int16_t[2];
  asm("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*reinterpret_cast<const Two*>(x)));
}

// Rows of x, four side by side (Activations): row m begins kNext after row m - 1, but for m = 4 and
// 8, which begin `far` after the row four before.
constexpr int64_t kNext = Activations::kChunkBytes;
[[gnu::always_inline]] inline const std::byte* row_of(const std::byte* x, int64_t far, int m) {
  constexpr int kTogether = Activations::kTogether;
  return x + m / kTogether * far + m % kTogether * kNext;
}

// Adds the products of one chunk to sum[m], 16 columns of row m.
template <int kGroup, int kM>
[[gnu::always_inline]] inline void add_chunk(const PanelChunk& w, const std::byte* x, int64_t far,
                                             __m512 (&sum)[kM]) {
  constexpr int kLanesOfGroup = kGroup / 4;
#pragma GCC unroll 4
  for (int g = 0; g < 64 / kGroup; ++g) {
    __m512i product[kM];
#pragma GCC unroll 16
    for (int m = 0; m < kM; ++m) product[m] = _mm512_setzero_si512();
    for (int j = g * kLanesOfGroup; j < (g + 1) * kLanesOfGroup; ++j) {
      const std::byte* two = x + 4 * j;
#pragma GCC unroll 16
      for (int m = 0; m < kM; ++m) add_products(product[m], w.pair[j].even, row_of(two, far, m));
      two += 2 * Activations::kOdd;
#pragma GCC unroll 16
      for (int m = 0; m < kM; ++m) add_products(product[m], w.pair[j].odd, row_of(two, far, m));
    }
#pragma GCC unroll 16
    for (int m = 0; m < kM; ++m) {
      const auto* scale = reinterpret_cast<const float*>(row_of(x, far, m) + 2 * kChunk);
      const __m512 by = _mm512_mul_ps(w.scale[g], _mm512_set1_ps(scale[g * kLanesOfGroup]));
      sum[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(product[m]), by, sum[m]);
    }
  }
}

// Of a block of 256 values: per_16 of each row, by group.
[[gnu::always_inline]] inline void load_minima(const Rows& w, int64_t block, PanelChunk* chunks) {
  __m512i r[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = Zmm::load_bytes(w.per_16(i, block));
  transpose(r);
  const int64_t last = chunk_count(w.k);
#pragma GCC unroll 16
  for (int g = 0; g < 16; ++g) {
    const int64_t chunk = block * 4 + g / 4;
    if (chunk < last) chunks[chunk].minimum[g % 4] = _mm512_castsi512_ps(r[g]);
  }
}

template <int kM>
[[gnu::always_inline]] inline void add_minima(const PanelChunk& w, const Activations& x,
                                              int64_t first, int64_t chunk, __m512 (&sum)[kM]) {
#pragma GCC unroll 16
  for (int m = 0; m < kM; ++m) {
    const float* sums = x.per_16(first + m, chunk / 4) + chunk % 4 * 4;
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      sum[m] = _mm512_fmadd_ps(w.minimum[g], _mm512_set1_ps(sums[g]), sum[m]);
    }
  }
}

// Rows of results this far apart fall into the same few lines of a cache: they go past it.
[[gnu::always_inline]] inline bool is_far(const Results& out) { return out.stride >= 1 << 14; }

[[gnu::always_inline]] inline void put_line(float* to, __mmask16 columns, __m512 v,
                                            bool past_cache) {
  if (past_cache && columns == 0xffff && reinterpret_cast<uintptr_t>(to) % 64 == 0) {
    _mm512_stream_ps(to, v);
  } else {
    _mm512_mask_storeu_ps(to, columns, v);
  }
}

template <int kGroup, int kM>
void panel_tile(const PanelChunk* chunks, bool minimum, const Activations& x, int64_t first,
                Extent wanted, Results out) {
  __m512 sum[kM];
#pragma GCC unroll 16
  for (int m = 0; m < kM; ++m) sum[m] = _mm512_setzero_ps();
  const int64_t far = chunk_count(x.k) * Activations::kTogether * kNext;
  const std::byte* rows = x.chunk(first, 0);
  for (int64_t c = 0; c < chunk_count(x.k); ++c) {
    add_chunk<kGroup, kM>(chunks[c], rows + c * Activations::kTogether * kNext, far, sum);
    if (minimum) add_minima<kM>(chunks[c], x, first, c, sum);
  }
  const auto columns = static_cast<__mmask16>((1U << wanted.columns) - 1);
#pragma GCC unroll 16
  for (int m = 0; m < kM; ++m) {
    const int64_t row = first + m;
    if (row < wanted.rows) put_line(out.data + row * out.stride, columns, sum[m], is_far(out));
  }
}

// Rows [first, first + kM) of x times all panels: they stay near while the panels pass.
template <int kGroup, int kM>
void tile_of_rows(const Panels& panels, const Activations& x, int64_t first, Extent wanted,
                  Results out) {
  const auto* chunks = reinterpret_cast<const PanelChunk*>(panels.data);
  for (int64_t p = 0; p < panels.count; ++p) {
    const int64_t left = wanted.columns - p * kPanel;
    panel_tile<kGroup, kM>(chunks + p * chunk_count(x.k), panels.minimum, x, first,
                           {wanted.rows, left < kPanel ? left : kPanel},
                           {out.data + p * kPanel, out.stride});
  }
}

template <int kGroup>
void tiles(const Panels& panels, const Activations& x, Extent wanted, Results out) {
  int64_t first = 0;
  for (; x.count - first >= 24 || x.count - first == 12; first += 12) {
    tile_of_rows<kGroup, 12>(panels, x, first, wanted, out);
  }
  for (; x.count - first >= 8; first += 8) tile_of_rows<kGroup, 8>(panels, x, first, wanted, out);
  if (first < x.count) tile_of_rows<kGroup, 4>(panels, x, first, wanted, out);
}

void dot_panels(const Panels& panels, Activations x, Extent wanted, Results out) {
  if (panels.by_16) {
    tiles<16>(panels, x, wanted, out);
  } else {
    tiles<32>(panels, x, wanted, out);
  }
  if (is_far(out)) _mm_sfence();
}

void prepare_panel(const UnpackedRows& rows, std::byte* panel) {
  auto* chunks = reinterpret_cast<PanelChunk*>(panel);
  for (int64_t c = 0; c < chunk_count(rows.w.k); ++c) {
    if (rows.by_16) {
      load_chunk<16>(rows.w, c, chunks[c]);
    } else {
      load_chunk<32>(rows.w, c, chunks[c]);
    }
  }
  if (!rows.minimum) return;
  for (int64_t b = 0; b < block_count(rows.w.k); ++b) load_minima(rows.w, b, chunks);
}

KernelTable make_avx512_table() {
  KernelTable table = make_table<Zmm>();
  table.panel_rows = kPanel;
  table.panel_chunk_bytes = sizeof(PanelChunk);
  table.prepare_panel = prepare_panel;
  table.dot_panels = dot_panels;
  table.packed = avx512_packed_kernels();
  table.quantise_packed = avx512_quantise_packed;
  return table;
}

}  // namespace

const KernelTable& avx512_kernels() {
  static const KernelTable kTable = make_avx512_table();
  return kTable;
}

}  // namespace mt::kernels
