// Products with packed rows (packed.h), written once over a register type V that holds V::kLanes of
// a panel's rows, a row to a 32-bit lane. Where that is half of them, a panel is walked twice.
//
// V has, beside what loops.h uses: shifts and masks of 32-bit lanes, lanes' halves as floats, and
//   products<kZero, kFirst, kLast, kM>: of q[kFirst] to q[kLast - 1] (less kZero each) with kM rows
//   of activations, summed by lane.
#pragma once

#include "kernels/packed.h"

namespace mt::kernels {

// 32 values of each row: q[j] has values 4 j to 4 j + 3.
template <class V>
struct PackedStep {
  typename V::Bytes q[8];
  typename V::Floats scale[2], minimum[2];  // of each 16 values, or of all 32 the first
};

using Words = const uint8_t*;  // of a block, from the first row of the register on
template <class V>
[[gnu::always_inline]] inline typename V::Bytes word(Words block, int i) {
  return V::load_bytes(block + 4 * kPackedRows * i);
}
// The bits of `low` that kLow has, and of `high` those that kAll has more, in every byte.
template <class V, int kLow, int kAll>
[[gnu::always_inline]] inline typename V::Bytes join(typename V::Bytes low,
                                                     typename V::Bytes high) {
  return V::and_(V::select(V::all(kLow), low, high), V::all(kAll));
}
// Bits kBit and on of every lane.
template <class V, int kBit>
[[gnu::always_inline]] inline typename V::Bytes bits(typename V::Bytes v, int mask) {
  return V::and_(V::template shift<-kBit>(v), V::all_words(mask));
}

// --- values: `w` has the words of 32 of them (packed.h).

// V[kI] and V[4 + kI].
template <class V, int kBits, int kI>
[[gnu::always_inline]] inline void load_value(Words w, typename V::Bytes (&q)[8]) {
  const auto nibbles = word<V>(w, kI);
  const auto high_nibbles = V::template shift<-4>(nibbles);
  if constexpr (kBits == 4) {
    q[kI] = V::and_(nibbles, V::all(15));
    q[4 + kI] = V::and_(high_nibbles, V::all(15));
  } else if constexpr (kBits == 5) {
    const auto fifth = word<V>(w, 4);
    q[kI] = join<V, 15, 31>(nibbles, V::template shift<4 - kI>(fifth));
    q[4 + kI] = join<V, 15, 31>(high_nibbles, V::template shift<-kI>(fifth));
  } else if constexpr (kBits == 6) {
    q[kI] = join<V, 15, 63>(nibbles, V::template shift<4 - 2 * kI>(word<V>(w, 4)));
    q[4 + kI] = join<V, 15, 63>(high_nibbles, V::template shift<4 - 2 * kI>(word<V>(w, 5)));
  } else if constexpr (kBits == 2) {
    q[kI] = V::and_(V::template shift<-2 * kI>(word<V>(w, 0)), V::all(3));
    q[4 + kI] = V::and_(V::template shift<-2 * kI>(word<V>(w, 1)), V::all(3));
  } else {
    const auto third = word<V>(w, 2);
    const auto low = V::template shift<-2 * kI>(word<V>(w, 0));
    q[kI] = join<V, 3, 7>(low, V::template shift<2 - kI>(third));
    const auto high = V::template shift<-2 * kI>(word<V>(w, 1));
    q[4 + kI] = join<V, 3, 7>(high, V::template shift<-2 - kI>(third));
  }
}

template <class V, int kBits>
[[gnu::always_inline]] inline void load_values(Words w, typename V::Bytes (&q)[8]) {
  if constexpr (kBits == 8) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) q[j] = word<V>(w, j);
  } else {
    load_value<V, kBits, 0>(w, q);
    load_value<V, kBits, 1>(w, q);
    load_value<V, kBits, 2>(w, q);
    load_value<V, kBits, 3>(w, q);
  }
}

// --- formats: kZero is what is taken off each value, kGroups how many scales 32 values have. A
// Head is what a block's steps of 32 values share.

template <class V>
struct ScaleAndMinimum {
  typename V::Floats scale, minimum;
};

template <class V, Format kOf, int kZeroOf>
struct BlocksOf32 {
  static constexpr Format kFormat = kOf;
  static constexpr int kZero = kZeroOf, kGroups = 1;
  using Head = ScaleAndMinimum<V>;
  [[gnu::always_inline]] static Head head(Words w, const uint8_t* half) {
    if constexpr (!has_minimum(kOf)) return {V::halves_at(half), V::zero()};
    return {V::low_halves(word<V>(w, 0)), V::high_halves(word<V>(w, 0))};
  }
  template <int>
  [[gnu::always_inline]] static void scales(Words, const Head& h, PackedStep<V>& out) {
    out.scale[0] = h.scale;
    out.minimum[0] = h.minimum;
  }
};

template <class V>
[[gnu::always_inline]] inline ScaleAndMinimum<V> scale_and_minimum(typename V::Bytes both) {
  return {V::low_halves(both), V::negative(V::high_halves(both))};
}
template <class V>
[[gnu::always_inline]] inline typename V::Floats times(typename V::Bytes integers,
                                                       typename V::Floats scale) {
  return V::multiply(V::as_floats(integers), scale);
}

template <class V, Format kOf>  // Q4_K or Q5_K
struct PackedK45 {
  static constexpr Format kFormat = kOf;
  static constexpr int kZero = 0, kGroups = 1;
  using Head = ScaleAndMinimum<V>;
  [[gnu::always_inline]] static Head head(Words w, const uint8_t*) {
    return scale_and_minimum<V>(word<V>(w, 0));
  }
  template <int kS>
  [[gnu::always_inline]] static void scales(Words w, const Head& h, PackedStep<V>& out) {
    constexpr int kByte = 8 * (kS % 4);
    const auto a = word<V>(w, 1), b = word<V>(w, 2), c = word<V>(w, 3);
    if constexpr (kS < 4) {
      out.scale[0] = times<V>(bits<V, kByte>(a, 63), h.scale);
      out.minimum[0] = times<V>(bits<V, kByte>(b, 63), h.minimum);
    } else {
      const auto high_a = bits<V, kByte + 2>(a, 0x30), high_b = bits<V, kByte + 2>(b, 0x30);
      out.scale[0] = times<V>(V::or_(bits<V, kByte>(c, 15), high_a), h.scale);
      out.minimum[0] = times<V>(V::or_(bits<V, kByte + 4>(c, 15), high_b), h.minimum);
    }
  }
};

template <class V>
struct PackedQ6_K {
  static constexpr Format kFormat = Format::kQ6_K;
  static constexpr int kZero = 32, kGroups = 2;
  using Head = typename V::Floats;
  [[gnu::always_inline]] static Head head(Words, const uint8_t* half) { return V::halves_at(half); }
  template <int kS>
  [[gnu::always_inline]] static void scales(Words w, const Head& h, PackedStep<V>& out) {
    constexpr int kByte = 2 * (kS % 2);
    const auto four = word<V>(w, kS / 2);
    out.scale[0] = times<V>(V::template signed_byte<kByte>(four), h);
    out.scale[1] = times<V>(V::template signed_byte<kByte + 1>(four), h);
  }
};

template <class V>
struct PackedQ2_K {
  static constexpr Format kFormat = Format::kQ2_K;
  static constexpr int kZero = 0, kGroups = 2;
  using Head = ScaleAndMinimum<V>;
  [[gnu::always_inline]] static Head head(Words w, const uint8_t*) {
    return scale_and_minimum<V>(word<V>(w, 4));
  }
  template <int kS>
  [[gnu::always_inline]] static void scales(Words w, const Head& h, PackedStep<V>& out) {
    group<0, 16 * (kS % 2)>(word<V>(w, kS / 2), h, out);
    group<1, 16 * (kS % 2) + 8>(word<V>(w, kS / 2), h, out);
  }
  template <int kG, int kBit>
  [[gnu::always_inline]] static void group(typename V::Bytes of, const Head& h,
                                           PackedStep<V>& out) {
    out.scale[kG] = times<V>(bits<V, kBit>(of, 15), h.scale);
    out.minimum[kG] = times<V>(bits<V, kBit + 4>(of, 15), h.minimum);
  }
};

template <class V>
struct PackedQ3_K {
  static constexpr Format kFormat = Format::kQ3_K;
  static constexpr int kZero = 4, kGroups = 2;
  using Head = typename V::Floats;
  [[gnu::always_inline]] static Head head(Words, const uint8_t* half) { return V::halves_at(half); }
  template <int kS>
  [[gnu::always_inline]] static void scales(Words w, const Head& h, PackedStep<V>& out) {
    out.scale[0] = group<2 * kS>(w, h);
    out.scale[1] = group<2 * kS + 1>(w, h);
  }
  template <int kG>
  [[gnu::always_inline]] static typename V::Floats group(Words w, const Head& h) {
    constexpr int kByte = 8 * (kG % 4);
    const auto low = bits<V, kByte + (kG < 8 ? 0 : 4)>(word<V>(w, kG % 8 / 4), 15);
    const auto high = bits<V, kByte + 2 * (kG / 4)>(word<V>(w, 2), 3);
    const auto both = V::or_(low, V::template shift<4>(high));
    return times<V>(V::subtract_words(both, 32), h);
  }
};

// --- walking a panel

constexpr int64_t kFarAhead = 8192;

template <class F>
constexpr const PackedFormat& kIs = kPackedFormats[static_cast<size_t>(F::kFormat)];
template <class F>
constexpr int64_t kSteps = kIs<F>.elements / 32;

// Gives `sink` each of a panel's steps of 32 values, by number. `ahead`: memory to ask for, or
// null.
template <class V, class F, int kS, class Sink>
[[gnu::always_inline]] inline void steps_from(Words words, const typename F::Head& head,
                                              const uint8_t* ahead, int64_t first, Sink& sink) {
  if constexpr (kS < kSteps<F>) {
    // A few lines at a time, as more would wait for each other; and so far ahead that they come to
    // the second cache only.
    constexpr int64_t kLines = (4 * kPackedRows * kIs<F>.words() + 2 * kPackedRows + 63) / 64;
    if (ahead != nullptr) {
#pragma GCC unroll 8
      for (int64_t i = kLines * kS / kSteps<F>; i < kLines * (kS + 1) / kSteps<F>; ++i) {
        __builtin_prefetch(ahead + 64 * i, 0, 2);
      }
    }
    PackedStep<V> step;
    F::template scales<kS>(words, head, step);
    load_values<V, kIs<F>.bits>(words + 4 * kPackedRows * (kIs<F>.head + kIs<F>.bits * kS), step.q);
    sink.step(first + kS, step);
    steps_from<V, F, kS + 1>(words, head, ahead, first, sink);
  }
}

// Rows kPart V::kLanes and on of a panel.
template <class V, class F, int kPart, class Sink>
[[gnu::always_inline]] inline void walk_panel(const uint8_t* panel, int64_t k, Sink& sink) {
  constexpr int64_t kWordBytes = 4 * kPackedRows * kIs<F>.words();
  const int64_t blocks = k / kIs<F>.elements;
  const uint8_t* halves = panel + blocks * kWordBytes;
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* words = panel + b * kWordBytes;
    const uint8_t* half = halves + 2 * kPackedRows * b;
    // The whole panel is read at one pace, so that far enough ahead is the next one.
    const uint8_t* ahead = kPart == 0 ? words + 2 * kPackedRows * b + kFarAhead : nullptr;
    words += 4 * kPart * V::kLanes;
    half += 2 * kPart * V::kLanes;
    steps_from<V, F, 0>(words, F::head(words, half), ahead, b * kSteps<F>, sink);
  }
}

// --- products

template <class V, class F, int kM>
struct PackedDot {  // a sink
  const ActivationStep* x;
  int64_t row_steps;
  typename V::Floats sum[kM];
  [[gnu::always_inline]] void step(int64_t s, const PackedStep<V>& w) {
    constexpr int kOfGroup = 8 / F::kGroups;
    const ActivationStep* a = x + s;
    add<0, kOfGroup>(a, w);
    if constexpr (F::kGroups == 2) add<1, kOfGroup>(a, w);
    if constexpr (has_minimum(F::kFormat)) {
#pragma GCC unroll 4
      for (int m = 0; m < kM; ++m) {
        const float* sums = a[m * row_steps].sum;
        if constexpr (F::kGroups == 1) {
          sum[m] = V::fma(w.minimum[0], V::all_lanes(sums[0] + sums[1]), sum[m]);
        } else {
          sum[m] = V::fma(w.minimum[0], V::all_lanes(sums[0]), sum[m]);
          sum[m] = V::fma(w.minimum[1], V::all_lanes(sums[1]), sum[m]);
        }
      }
    }
  }
  template <int kG, int kOfGroup>
  [[gnu::always_inline]] void add(const ActivationStep* a, const PackedStep<V>& w) {
    typename V::Floats product[kM];
    V::template products<F::kZero, kG * kOfGroup, (kG + 1) * kOfGroup, kM>(w.q, a, row_steps,
                                                                           product);
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) {
      const auto by = V::multiply(w.scale[kG], V::all_lanes(a[m * row_steps].scale));
      sum[m] = V::fma(product[m], by, sum[m]);
    }
  }
};

// Which of an ActivationStep's sums q[kFirst] to q[kLast - 1] meet.
template <int kFirst, int kLast>
constexpr int kSumOf = kLast - kFirst == 8 ? 2 : kFirst / 4;

template <class V, class F, int kM, int kPart>
[[gnu::always_inline]] inline void dot_part(const uint8_t* panel, int64_t k,
                                            const ActivationStep* x, Results out) {
  PackedDot<V, F, kM> sink{x, k / 32, {}};
#pragma GCC unroll 4
  for (int m = 0; m < kM; ++m) sink.sum[m] = V::zero();
  walk_panel<V, F, kPart>(panel, k, sink);
#pragma GCC unroll 4
  for (int m = 0; m < kM; ++m) V::store(out.data + m * out.stride + kPart * V::kLanes, sink.sum[m]);
}

template <class V, class F, int kM>
void dot_panel(const uint8_t* panel, int64_t k, const ActivationStep* x, Results out) {
  dot_part<V, F, kM, 0>(panel, k, x, out);
  if constexpr (V::kLanes < kPackedRows) dot_part<V, F, kM, 1>(panel, k, x, out);
}

template <class V, class F>
void dot_packed(PackedRows w, const ActivationStep* x, int64_t m, Results out) {
  for (int64_t p = 0; p < w.panels; ++p) {
    const uint8_t* panel = w.data + p * w.panel_bytes;
    const auto at = [&](int64_t first) {
      return Results{out.data + first * out.stride + p * kPackedRows, out.stride};
    };
    int64_t first = 0;
    for (; m - first >= 4; first += 4) {
      dot_panel<V, F, 4>(panel, w.k, x + first * (w.k / 32), at(first));
    }
    for (; m - first >= 2; first += 2) {
      dot_panel<V, F, 2>(panel, w.k, x + first * (w.k / 32), at(first));
    }
    if (first < m) dot_panel<V, F, 1>(panel, w.k, x + first * (w.k / 32), at(first));
  }
}

// --- to the panels that many rows of activations meet: V::PanelChunk has, of 64 columns, pair[j]
// with values 4 j to 4 j + 3 of each row, scale[g] their scale for group g of 16 (or g of 32, in
// the first two), and minimum[g] of each 16.

template <class V, class F>
struct ToChunks {  // a sink
  typename V::PanelChunk* chunks;
  [[gnu::always_inline]] void step(int64_t s, const PackedStep<V>& w) {
    auto& to = chunks[s / 2 * (kPackedRows / V::kLanes)];
    const int64_t part = s % 2;
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      to.pair[part * 8 + j] = V::template split<false>(V::subtract(w.q[j], F::kZero));
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

template <class V, class F, int kPart>
[[gnu::always_inline]] inline void prepare_part(const uint8_t* packed, int64_t k,
                                                std::byte* panel) {
  ToChunks<V, F> sink{reinterpret_cast<typename V::PanelChunk*>(panel) + kPart};
  walk_panel<V, F, kPart>(packed, k, sink);
  if (k / 32 % 2 == 0) return;
  // What lies beyond k only has to be finite.
  PackedStep<V> none;
  for (auto& q : none.q) q = V::all(0);
  for (int g = 0; g < 2; ++g) none.scale[g] = none.minimum[g] = V::zero();
  sink.step(k / 32, none);
}

template <class V, class F>
void prepare_packed(const uint8_t* packed, int64_t k, std::byte* panel) {
  prepare_part<V, F, 0>(packed, k, panel);
  if constexpr (V::kLanes < kPackedRows) prepare_part<V, F, 1>(packed, k, panel);
}

template <class V, class F>
constexpr PackedKernels packed_kernels_of() {
  return {dot_packed<V, F>, prepare_packed<V, F>};
}

template <class V>
constexpr std::array<PackedKernels, kFormats> make_packed_kernels() {
  return {packed_kernels_of<V, BlocksOf32<V, Format::kQ4_0, 8>>(),
          packed_kernels_of<V, BlocksOf32<V, Format::kQ4_1, 0>>(),
          packed_kernels_of<V, BlocksOf32<V, Format::kQ5_0, 16>>(),
          packed_kernels_of<V, BlocksOf32<V, Format::kQ5_1, 0>>(),
          packed_kernels_of<V, BlocksOf32<V, Format::kQ8_0, 128>>(),
          packed_kernels_of<V, PackedQ2_K<V>>(),
          packed_kernels_of<V, PackedQ3_K<V>>(),
          packed_kernels_of<V, PackedK45<V, Format::kQ4_K>>(),
          packed_kernels_of<V, PackedK45<V, Format::kQ5_K>>(),
          packed_kernels_of<V, PackedQ6_K<V>>()};
}

}  // namespace mt::kernels
