// AVX-512 (F, BW, DQ, VL) with VNNI: two blocks of 32 values in a register.
#include <immintrin.h>

#include "kernels/instruction_set.h"
#include "kernels/loops.h"
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

// One chunk of 64 columns: pair[j] has values 4 j to 4 j + 3 of each row, scale[g] their scale for
// group g of 16 (or g of 32, in the first two).
struct PanelChunk {
  Zmm::Pair pair[16];
  __m512 scale[4];
  __m512 minimum[4];  // of each 16
};

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

constexpr KernelTable make_avx512_table() {
  KernelTable table = make_table<Zmm>();
  table.panel_rows = kPanel;
  table.panel_chunk_bytes = sizeof(PanelChunk);
  table.prepare_panel = prepare_panel;
  table.dot_panels = dot_panels;
  return table;
}

}  // namespace

const KernelTable& avx512_kernels() {
  static constexpr KernelTable kTable = make_avx512_table();
  return kTable;
}

}  // namespace mt::kernels
