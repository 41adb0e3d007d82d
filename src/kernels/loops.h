// The kernels' loops, written once over a register type V (ymm.h, avx512.cc). Each file that
// instantiates them has V in an unnamed namespace, so that the linker never mixes the code of two
// instruction sets.
//
// V has Bytes (kValues 8-bit integers), Floats (kLanes = kValues / 4 numbers), Chunk (both), Scales
// (16 numbers), Pair (Bytes as two registers of 16-bit integers) and the functions used below.
#pragma once

#include "kernels/attend_loops.h"
#include "kernels/kernel_table.h"
#include "kernels/unpack.h"

namespace mt::kernels {

// --- blocks of 32 values: `a` is a block and `b` the next one, or `a` again where there is none.
// V with one block to a register looks at `a` alone.

template <class V>
using Chunk = typename V::Chunk;  // Bytes q and, for each 4 of them, Floats scale

struct Q8_0 {
  static constexpr Format kFormat = Format::kQ8_0;
  static constexpr int64_t kBytes = 34;
  template <class V>
  static Chunk<V> chunk(const uint8_t* a, const uint8_t* b) {
    return {V::load_two(a + 2, b + 2), V::halves(a, b)};
  }
};

template <Format kOf, int64_t kHeader, bool kFifthBit, int kZero>
struct Nibbles {
  static constexpr Format kFormat = kOf;
  static constexpr int64_t kBytes = kHeader + (kFifthBit ? 4 : 0) + 16;
  template <class V>
  static Chunk<V> chunk(const uint8_t* a, const uint8_t* b) {
    Chunk<V> out = V::template nibbles<kBytes>(a, b);
    if constexpr (kZero != 0) out.q = V::subtract(out.q, kZero);
    if constexpr (kFifthBit) out.q = V::add_16_where(out.q, a + kHeader, b + kHeader);
    return out;
  }
};
using Q4_0 = Nibbles<Format::kQ4_0, 2, false, 8>;
using Q4_1 = Nibbles<Format::kQ4_1, 4, false, 0>;
using Q5_0 = Nibbles<Format::kQ5_0, 2, true, 16>;
using Q5_1 = Nibbles<Format::kQ5_1, 4, true, 0>;

// Asks for the memory that a loop will need this many bytes later. Processors do so by themselves,
// but not past the end of a page.
constexpr int64_t kAhead = 2048;
template <int64_t kBytes>
[[gnu::always_inline]] inline void read_ahead(const uint8_t* p) {
#pragma GCC unroll 4
  for (int64_t i = 0; i < kBytes; i += 64) __builtin_prefetch(p + kAhead + i);
}

// Gives `sink` a row's chunks of V::kValues integers with their scales, and its minima.
template <class V, class F, class Sink>
void walk_32(const uint8_t* p, int64_t k, Sink& sink) {
  constexpr int64_t kTogether = V::kValues / 32;
  const int64_t blocks = k / 32, whole = blocks / kTogether;
  for (int64_t c = 0; c < whole; ++c) {
    const uint8_t* a = p + c * kTogether * F::kBytes;
    const uint8_t* b = a + (kTogether - 1) * F::kBytes;
    read_ahead<kTogether * F::kBytes>(a);
    sink.chunk(c, F::template chunk<V>(a, b));
  }
  if (blocks % kTogether != 0) {
    const uint8_t* a = p + (blocks - 1) * F::kBytes;
    sink.chunk(whole, F::template chunk<V>(a, a));
  }
  if constexpr (has_minimum(F::kFormat)) {
    int64_t b = 0;
    for (; b + 4 <= blocks; b += 4) {
#pragma GCC unroll 4
      for (int64_t i = 0; i < 4; ++i)
        sink.minimum_of_32(b + i, i, V::half(p + (b + i) * F::kBytes + 2));
    }
    for (; b < blocks; ++b) sink.minimum_of_32(b, 0, V::half(p + b * F::kBytes + 2));
  }
}

// --- blocks of 256 values

struct Q4_K {
  static constexpr Format kFormat = Format::kQ4_K;
  static constexpr int64_t kBytes = 144;
  template <class V>
  static typename V::Bytes bytes(const uint8_t* p, int chunk) {
    return V::nibble_rows(p + 16, chunk);
  }
};
struct Q5_K {
  static constexpr Format kFormat = Format::kQ5_K;
  static constexpr int64_t kBytes = 176;
  template <class V>
  static typename V::Bytes bytes(const uint8_t* p, int chunk) {
    return V::add_16_where_row(V::nibble_rows(p + 48, chunk), p + 16, chunk);
  }
};
struct Q6_K {
  static constexpr Format kFormat = Format::kQ6_K;
  static constexpr int64_t kBytes = 210;
  template <class V>
  static typename V::Bytes bytes(const uint8_t* p, int chunk) {
    return V::subtract(V::six_bits(p, p + 128, chunk), 32);
  }
};

struct ScalesAndMinima {  // 8 bytes each
  uint64_t scales, minima;
};
// Eight 6-bit scales and minima out of 12 bytes (checkpoint/gguf_blocks.cc), all at once.
[[gnu::always_inline]] inline ScalesAndMinima k4_scales(const uint8_t* p) {
  uint32_t a, b, c;
  __builtin_memcpy(&a, p, 4);
  __builtin_memcpy(&b, p + 4, 4);
  __builtin_memcpy(&c, p + 8, 4);
  const uint64_t high_scales = (c & 0x0f0f0f0fU) | ((a >> 2) & 0x30303030U);
  const uint64_t high_minima = ((c >> 4) & 0x0f0f0f0fU) | ((b >> 2) & 0x30303030U);
  return {(a & 0x3f3f3f3fU) | high_scales << 32, (b & 0x3f3f3f3fU) | high_minima << 32};
}

template <class V, class F, class Sink>
void walk_256(const uint8_t* p, int64_t k, Sink& sink) {
  constexpr int kChunks = static_cast<int>(kBlock / V::kValues);
  for (int64_t block = 0; block < k / kBlock; ++block, p += F::kBytes) {
    typename V::Scales scales;
    read_ahead<F::kBytes>(p);
    if constexpr (F::kFormat == Format::kQ6_K) {
      scales = V::scales_s8(p + 192, V::half(p + 208));
    } else {
      const ScalesAndMinima packed = k4_scales(p + 4);
      scales = V::scales_u8(packed.scales, V::half(p));
      sink.minima(block, V::scales_u8(packed.minima, -V::half(p + 2)));
    }
#pragma GCC unroll 8
    for (int c = 0; c < kChunks; ++c) {
      sink.chunk(block * kChunks + c, Chunk<V>{F::template bytes<V>(p, c), V::expand(scales, c)});
    }
  }
}

template <class V, class F, class Sink>
[[gnu::always_inline]] inline void walk(const uint8_t* p, int64_t k, Sink& sink) {
  if constexpr (F::kFormat >= Format::kQ2_K) {
    walk_256<V, F>(p, k, sink);
  } else {
    walk_32<V, F>(p, k, sink);
  }
}

// A chunk of V::kValues lies in one of kChunk: which, and where.
template <class V>
struct Place {
  static constexpr int64_t kParts = kChunk / V::kValues;
  [[gnu::always_inline]] explicit Place(int64_t c)
      : chunk(c / kParts),
        q(c % kParts * V::kValues),
        half(c % kParts * V::kValues / 2),
        scale(c % kParts * V::kLanes) {}
  int64_t chunk, q, half, scale;  // half: of activations, in their even or odd ones
};

template <class V>
struct StoreRow {  // a sink
  Rows out;
  int64_t row;
  [[gnu::always_inline]] void chunk(int64_t c, const Chunk<V>& w) {
    const Place<V> at(c);
    V::store(out.q(row, at.chunk) + at.q, w.q);
    V::store(out.scale(row, at.chunk) + at.scale, w.scale);
  }
  [[gnu::always_inline]] void minima(int64_t block, typename V::Scales m) {
    V::store(out.per_16(row, block), m);
  }
  [[gnu::always_inline]] void minimum_of_32(int64_t b, int64_t, float m) {
    float* to = out.per_16(row, b / 8) + b % 8 * 2;
    to[0] = m;
    to[1] = m;
  }
};

template <class V, class F, int kM>
struct Dot {  // a sink
  Activations x;
  int64_t first;  // of kM rows of x
  typename V::Floats sum[kM];
  float minimum[kM][4] = {};  // several, as each sum waits for the one before
  [[gnu::always_inline]] void chunk(int64_t c, const Chunk<V>& w) {
    const Place<V> at(c);
    // Formats with a minimum have no negative integers.
    const auto pair = V::template split<has_minimum(F::kFormat)>(w.q);
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) {
      const float* x_scale = x.scale(first + m, at.chunk) + at.scale;
      const auto product = V::dot(pair, x.q(first + m, at.chunk) + at.half);
      sum[m] = V::fma(product, V::multiply(w.scale, V::load(x_scale)), sum[m]);
    }
  }
  [[gnu::always_inline]] void minima(int64_t block, typename V::Scales of) {
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) sum[m] = V::fma(of, x.per_16(first + m, block), sum[m]);
  }
  [[gnu::always_inline]] void minimum_of_32(int64_t b, int64_t chain, float of) {
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) {
      const float* sums = x.per_16(first + m, b / 8) + b % 8 * 2;
      minimum[m][chain] += of * (sums[0] + sums[1]);
    }
  }
};

template <class V, class F>
void unpack(const uint8_t* blocks, Rows out, int64_t row) {
  // The last chunk and block may be filled in part only.
  float* last_scale = out.scale(row, chunk_count(out.k) - 1);
  float* last_16 = out.per_16(row, block_count(out.k) - 1);
  for (int64_t i = 0; i < 16; ++i) last_scale[i] = last_16[i] = 0;
  StoreRow<V> sink{out, row};
  walk<V, F>(blocks, out.k, sink);
}

template <class V, class F, int kM>
[[gnu::always_inline]] inline void dot_row(const uint8_t* w, const Activations& x, int64_t first,
                                           Results out) {
  Dot<V, F, kM> sink{x, first};
#pragma GCC unroll 4
  for (int m = 0; m < kM; ++m) sink.sum[m] = V::zero();
  walk<V, F>(w, x.k, sink);
#pragma GCC unroll 4
  for (int m = 0; m < kM; ++m) {
    const float* of = sink.minimum[m];
    out.data[(first + m) * out.stride] = V::sum(sink.sum[m]) + ((of[0] + of[1]) + (of[2] + of[3]));
  }
}

template <class V, class F>
void dot(BlockRows w, Activations x, int64_t m, Results out) {
  for (int64_t n = 0; n < w.count; ++n) {
    const uint8_t* row = w.data + n * w.bytes;
    const Results here{out.data + n, out.stride};
    int64_t first = 0;
    for (; m - first >= 4; first += 4) dot_row<V, F, 4>(row, x, first, here);
    for (; first < m; ++first) dot_row<V, F, 1>(row, x, first, here);
  }
}

// --- several rows of activations: kM accumulators at a time

template <class V, int kM>
void dot_tile(Rows w, bool minimum, Activations x, int64_t first, Results out) {
  typename V::Floats sum[kM];
#pragma GCC unroll 16
  for (int m = 0; m < kM; ++m) sum[m] = V::zero();
  const int64_t steps = chunk_count(x.k) * Place<V>::kParts;
  for (int64_t c = 0; c < steps; ++c) {
    const Place<V> at(c);
    const auto weights = V::template split<false>(V::load_bytes(w.q(0, at.chunk) + at.q));
    const auto scale = V::load(w.scale(0, at.chunk) + at.scale);
#pragma GCC unroll 16
    for (int m = 0; m < kM; ++m) {
      const auto product = V::dot(weights, x.q(first + m, at.chunk) + at.half);
      const auto by = V::multiply(scale, V::load(x.scale(first + m, at.chunk) + at.scale));
      sum[m] = V::fma(product, by, sum[m]);
    }
  }
  for (int64_t b = 0; minimum && b < block_count(x.k); ++b) {
    const typename V::Scales minima = V::load_scales(w.per_16(0, b));
#pragma GCC unroll 16
    for (int m = 0; m < kM; ++m) sum[m] = V::fma(minima, x.per_16(first + m, b), sum[m]);
  }
#pragma GCC unroll 16
  for (int m = 0; m < kM; ++m) out.data[(first + m) * out.stride] = V::sum(sum[m]);
}

// Calls tile.run<kM>(first) for the largest kM that is at most kLargest and fits, until all are
// done.
template <int kLargest, class Tile>
[[gnu::always_inline]] inline void in_tiles(int64_t count, const Tile& tile) {
  int64_t first = 0;
  if constexpr (kLargest >= 8) {
    for (; count - first >= 8; first += 8) tile.template run<8>(first);
  }
  for (; count - first >= 4; first += 4) tile.template run<4>(first);
  for (; count - first >= 2; first += 2) tile.template run<2>(first);
  if (first < count) tile.template run<1>(first);
}

template <class V>
struct UnpackedTile {
  Rows w;
  bool minimum;
  Activations x;
  Results out;
  template <int kM>
  [[gnu::always_inline]] void run(int64_t first) const {
    dot_tile<V, kM>(w, minimum, x, first, out);
  }
};

template <class V>
void dot_unpacked(Rows w, bool minimum, Activations x, int64_t m, Results out) {
  in_tiles<V::kTile>(m, UnpackedTile<V>{w, minimum, x, out});
}

template <class V>
void to_f32(Rows w, bool minimum, float* out) {
  for (int64_t i = 0; i < w.k; i += 16) {
    const uint8_t* q = w.q(0, i / kChunk) + i % kChunk;
    const float scale = w.scale(0, i / kChunk)[i % kChunk / 4];
    if (minimum) {
      V::values_16(q, scale, w.per_16(0, i / kBlock)[i % kBlock / 16], out + i);
    } else {
      V::values_16(q, scale, out + i);
    }
  }
}

// --- float weights

template <class V, Float kType>
void widen(const void* in, int64_t k, float* out) {
  int64_t i = 0;
  for (; i + V::kLanes <= k; i += V::kLanes) V::store(out + i, V::template load_as<kType>(in, i));
  for (; i < k; ++i) out[i] = V::template one_as<kType>(in, i);
}

// kN weight rows times kM rows of x, in kChains sums each: each number that is loaded is used
// several times, and the sums under way at once hide an fma's latency.
template <class V, Float kType, int kN, int kM, int kChains>
[[gnu::always_inline]] inline void matvec_tile(const void* w, int64_t k, const float* x,
                                               Results out) {
  typename V::Floats sum[kN * kM * kChains];
#pragma GCC unroll 16
  for (int j = 0; j < kN * kM * kChains; ++j) sum[j] = V::zero();
  int64_t i = 0;
  for (; i + V::kLanes * kChains <= k; i += V::kLanes * kChains) {
#pragma GCC unroll 4
    for (int64_t chain = 0; chain < kChains; ++chain) {
      typename V::Floats weight[kN];
#pragma GCC unroll 4
      for (int n = 0; n < kN; ++n) {
        weight[n] = V::template load_as<kType>(w, n * k + i + chain * V::kLanes);
      }
#pragma GCC unroll 4
      for (int m = 0; m < kM; ++m) {
        const auto xs = V::load(x + m * k + i + chain * V::kLanes);
#pragma GCC unroll 4
        for (int n = 0; n < kN; ++n) {
          auto& s = sum[(m * kN + n) * kChains + chain];
          s = V::fma(weight[n], xs, s);
        }
      }
    }
  }
  for (int m = 0; m < kM; ++m) {
    for (int n = 0; n < kN; ++n) {
      typename V::Floats all = sum[(m * kN + n) * kChains];
      for (int j = 1; j < kChains; ++j) all = V::add(all, sum[(m * kN + n) * kChains + j]);
      float total = V::sum(all);
      for (int64_t j = i; j < k; ++j) {
        total += V::template one_as<kType>(w, n * k + j) * x[m * k + j];
      }
      out.data[m * out.stride + n] = total;
    }
  }
}

template <class V, Float kType, int kN>
struct MatvecTile {
  const void* w;
  int64_t k;
  const float* x;
  Results out;
  template <int kM>
  [[gnu::always_inline]] void run(int64_t first) const {
    const Results here{out.data + first * out.stride, out.stride};
    matvec_tile<V, kType, kN, kM, kN * kM >= 4 ? 1 : 4>(w, k, x + first * k, here);
  }
};

template <class V, Float kType>
void matvec(FloatRows w, const float* x, int64_t m, Results out) {
  const int64_t row_bytes = w.k * (kType == Float::kF32 ? 4 : 2);
  const auto row = [&](int64_t n) { return static_cast<const std::byte*>(w.data) + n * row_bytes; };
  int64_t n = 0;
  for (; m > kFewRows && n + V::kRowsTogether <= w.count; n += V::kRowsTogether) {
    const Results here{out.data + n, out.stride};
    in_tiles<4>(m, MatvecTile<V, kType, V::kRowsTogether>{row(n), w.k, x, here});
  }
  for (; n < w.count; ++n) {
    if (m > kFewRows) {
      in_tiles<4>(m, MatvecTile<V, kType, 1>{row(n), w.k, x, {out.data + n, out.stride}});
      continue;
    }
    // Few rows: a result does not depend on how many.
    for (int64_t i = 0; i < m; i += 2) {
      const Results here{out.data + i * out.stride + n, out.stride};
      if (i + 1 < m) {
        matvec_tile<V, kType, 1, 2, 4>(row(n), w.k, x + i * w.k, here);
      } else {
        matvec_tile<V, kType, 1, 1, 4>(row(n), w.k, x + i * w.k, here);
      }
    }
  }
}

// --- norms

template <class V>
float sum_of_squares(const float* x, int64_t size) {
  typename V::Floats sum[4] = {V::zero(), V::zero(), V::zero(), V::zero()};
  int64_t i = 0;
  for (; i + 4 * V::kLanes <= size; i += 4 * V::kLanes) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const auto v = V::load(x + i + j * V::kLanes);
      sum[j] = V::fma(v, v, sum[j]);
    }
  }
  float total = V::sum(V::add(V::add(sum[0], sum[1]), V::add(sum[2], sum[3])));
  for (; i < size; ++i) total += x[i] * x[i];
  return total;
}

template <class V>
void norm(const NormRow& r) {
  const float mean = sum_of_squares<V>(r.x, r.size) / static_cast<float>(r.size);
  const float inverse = 1.0F / __builtin_sqrtf(mean + r.epsilon);
  const auto by = V::all_lanes(inverse), factor = V::all_lanes(r.factor);
  const auto normed = [&](int64_t i) {
    return V::multiply(V::multiply(V::load(r.x + i), by), V::load(r.scale + i));
  };
  const auto one = [&](int64_t i) { return r.x[i] * inverse * r.scale[i]; };
  int64_t i = 0;
  if (r.cos == nullptr) {
    for (; i + V::kLanes <= r.size; i += V::kLanes) {
      V::store(r.out + i, V::multiply(normed(i), factor));
    }
    for (; i < r.size; ++i) r.out[i] = one(i) * r.factor;
    return;
  }
  const int64_t half = r.size / 2;
  const auto minus = V::all_lanes(-1.0F);
  for (; i + V::kLanes <= half; i += V::kLanes) {
    const auto a = normed(i), b = normed(i + half), cos = V::load(r.cos + i),
               sin = V::load(r.sin + i);
    const auto left = V::fma(V::multiply(b, minus), sin, V::multiply(a, cos));
    const auto right = V::fma(a, sin, V::multiply(b, cos));
    V::store(r.out + i, V::multiply(left, factor));
    V::store(r.out + i + half, V::multiply(right, factor));
  }
  for (; i < half; ++i) {
    const float a = one(i), b = one(i + half);
    r.out[i] = (a * r.cos[i] - b * r.sin[i]) * r.factor;
    r.out[i + half] = (b * r.cos[i] + a * r.sin[i]) * r.factor;
  }
}

// Formats without faster code. With V in its name, so that each file has its own.
template <class V, Format kFormat>
void unpack_plainly(const uint8_t* blocks, Rows out, int64_t row) {
  unpack_row(kFormat, blocks, out, row);
}

template <class V>
constexpr KernelTable make_table() {
  return {
      .quantise = V::quantise,
      .formats = {{{unpack<V, Q4_0>, dot<V, Q4_0>},
                   {unpack<V, Q4_1>, dot<V, Q4_1>},
                   {unpack<V, Q5_0>, dot<V, Q5_0>},
                   {unpack<V, Q5_1>, dot<V, Q5_1>},
                   {unpack<V, Q8_0>, dot<V, Q8_0>},
                   {unpack_plainly<V, Format::kQ2_K>},
                   {unpack_plainly<V, Format::kQ3_K>},
                   {unpack<V, Q4_K>, dot<V, Q4_K>},
                   {unpack<V, Q5_K>, dot<V, Q5_K>},
                   {unpack<V, Q6_K>, dot<V, Q6_K>}}},
      .dot_unpacked = dot_unpacked<V>,
      .to_f32 = to_f32<V>,
      .widen = {widen<V, Float::kF32>, widen<V, Float::kF16>, widen<V, Float::kBF16>},
      .matvec = {matvec<V, Float::kF32>, matvec<V, Float::kF16>, matvec<V, Float::kBF16>},
      .attention = make_attention<V>(),
      .norm = norm<V>,
      .largest = largest<V>,
  };
}

}  // namespace mt::kernels
