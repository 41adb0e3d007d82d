// Loops with e^x in them, written once over a register type V (as loops.h): attention over a cache,
// and the largest of many logits.
// V has Floats of kLanes numbers and the functions used below.
#pragma once

#include "kernels/kernel_table.h"

namespace mt::kernels {

// e^x for x <= 0 within a few units in the last place: 2^n by exponent, the rest by its series.
// Below -87 it stays e^-87, which no float32 sum of attention weights notices.
template <class V>
[[gnu::always_inline]] inline typename V::Floats exp_of(typename V::Floats x) {
  constexpr float kLog2E = 1.442695041F, kLn2High = 0.693145752F, kLn2Low = 1.42860677e-6F;
  constexpr float kSeries[] = {1.0F / 5040, 1.0F / 720, 1.0F / 120, 1.0F / 24,
                               1.0F / 6,    0.5F,       1.0F,       1.0F};
  x = V::max_keeping_nan(x, V::all_lanes(-87.0F));
  const auto n = V::round(V::multiply(x, V::all_lanes(kLog2E)));
  const auto rest = V::fma(n, V::all_lanes(-kLn2Low), V::fma(n, V::all_lanes(-kLn2High), x));
  auto sum = V::all_lanes(kSeries[0]);
#pragma GCC unroll 8
  for (int i = 1; i < 8; ++i) sum = V::fma(sum, rest, V::all_lanes(kSeries[i]));
  return V::times_power_of_2(sum, n);
}

// Scores of kG query heads against each entry, [kG][kMostEntries].
template <class V, Float kType, int kG>
[[gnu::always_inline]] inline void score(const CacheEntries& e, const float* q, float* scores) {
  for (int64_t i = 0; i < e.count; ++i) {
    typename V::Floats sum[kG];
#pragma GCC unroll 4
    for (int g = 0; g < kG; ++g) sum[g] = V::zero();
    for (int64_t h = 0; h < e.head_dim; h += V::kLanes) {
      const auto key = V::template load_as<kType>(e.keys, i * e.head_dim + h);
#pragma GCC unroll 4
      for (int g = 0; g < kG; ++g) sum[g] = V::fma(key, V::load(q + g * e.head_dim + h), sum[g]);
    }
    const float scale = kType == Float::kS8 ? e.key_scale[i] : 1.0F;
#pragma GCC unroll 4
    for (int g = 0; g < kG; ++g) scores[g * kMostEntries + i] = scale * V::sum(sum[g]);
  }
}

// Turns a head's scores into weights e^(score - max); gives the maximum and the weights' sum.
template <class V, Float kType>
[[gnu::always_inline]] inline void weigh(const CacheEntries& e, float* scores, float* max,
                                         float* sum) {
  float most = scores[0];
  for (int64_t i = 1; i < e.count; ++i) {
    // A NaN must not get lost: it stays the maximum.
    if (!(scores[i] <= most)) most = most != most ? most : scores[i];
  }
  for (int64_t i = e.count; i % V::kLanes != 0; ++i) scores[i] = most;
  for (int64_t i = 0; i < e.count; i += V::kLanes) {
    const auto x = V::add(V::load(scores + i), V::all_lanes(-most));
    V::store(scores + i, exp_of<V>(x));
  }
  float all = 0;
  for (int64_t i = 0; i < e.count; ++i) all += scores[i];
  if constexpr (kType == Float::kS8) {
    for (int64_t i = 0; i < e.count; ++i) scores[i] *= e.value_scale[i];
  }
  *max = most;
  *sum = all;
}

// context[kG][head_dim] = weights times values.
template <class V, Float kType, int kG, int kH>
[[gnu::always_inline]] inline void mix_columns(const CacheEntries& e, const float* weights,
                                               int64_t h, float* context) {
  typename V::Floats sum[kG][kH];
#pragma GCC unroll 4
  for (int g = 0; g < kG; ++g) {
#pragma GCC unroll 4
    for (int j = 0; j < kH; ++j) sum[g][j] = V::zero();
  }
  for (int64_t i = 0; i < e.count; ++i) {
    typename V::Floats value[kH];
#pragma GCC unroll 4
    for (int j = 0; j < kH; ++j) {
      value[j] = V::template load_as<kType>(e.values, i * e.head_dim + h + j * V::kLanes);
    }
#pragma GCC unroll 4
    for (int g = 0; g < kG; ++g) {
      const auto weight = V::all_lanes(weights[g * kMostEntries + i]);
#pragma GCC unroll 4
      for (int j = 0; j < kH; ++j) sum[g][j] = V::fma(value[j], weight, sum[g][j]);
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < kG; ++g) {
#pragma GCC unroll 4
    for (int j = 0; j < kH; ++j) {
      V::store(context + g * e.head_dim + h + j * V::kLanes, sum[g][j]);
    }
  }
}

template <class V, Float kType, int kG>
void attend_heads(const CacheEntries& e, const float* q, PartialAttention out) {
  float scores[kG * kMostEntries];
  score<V, kType, kG>(e, q, scores);
  for (int g = 0; g < kG; ++g) {
    weigh<V, kType>(e, scores + g * kMostEntries, out.max + g, out.sum + g);
  }
  int64_t h = 0;
  constexpr int kColumns = 4;
  for (; h + kColumns * V::kLanes <= e.head_dim; h += kColumns * V::kLanes) {
    mix_columns<V, kType, kG, kColumns>(e, scores, h, out.context);
  }
  for (; h < e.head_dim; h += V::kLanes) mix_columns<V, kType, kG, 1>(e, scores, h, out.context);
}

// `heads` query heads over up to kMostEntries entries; head_dim is a multiple of V::kLanes.
template <class V, Float kType>
void attend(const CacheEntries& e, const float* q, int64_t heads, PartialAttention out) {
  const auto from = [&](int64_t g) {
    return PartialAttention{out.max + g, out.sum + g, out.context + g * e.head_dim};
  };
  int64_t g = 0;
  for (; heads - g >= 4; g += 4) attend_heads<V, kType, 4>(e, q + g * e.head_dim, from(g));
  for (; heads - g >= 2; g += 2) attend_heads<V, kType, 2>(e, q + g * e.head_dim, from(g));
  if (g < heads) attend_heads<V, kType, 1>(e, q + g * e.head_dim, from(g));
}

// --- many queries at once: AttentionBlock (kernel_table.h)

// Scores of kRowsOfQ rows of q against kC tiles of V::kLanes keys.
template <class V, int kC>
[[gnu::always_inline]] inline void score_tile(const float* keys, const float* q, int64_t head_dim,
                                              float* scores) {
  typename V::Floats sum[kRowsOfQ][kC];
#pragma GCC unroll 8
  for (int r = 0; r < kRowsOfQ; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < kC; ++c) sum[r][c] = V::zero();
  }
  for (int64_t h = 0; h < head_dim; ++h) {
    typename V::Floats key[kC];
#pragma GCC unroll 2
    for (int c = 0; c < kC; ++c) key[c] = V::load(keys + (c * head_dim + h) * V::kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRowsOfQ; ++r) {
      const auto x = V::all_lanes(q[h * kRowsOfQ + r]);
#pragma GCC unroll 2
      for (int c = 0; c < kC; ++c) sum[r][c] = V::fma(key[c], x, sum[r][c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRowsOfQ; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < kC; ++c) V::store(scores + r * kMostEntries + c * V::kLanes, sum[r][c]);
  }
}

// context += weights times values, for kR rows and kH registers of columns.
template <class V, int kR, int kH>
[[gnu::always_inline]] inline void mix_tile(const float* values, int64_t keys, int64_t head_dim,
                                            const float* weights, float* context) {
  typename V::Floats sum[kR][kH];
#pragma GCC unroll 4
  for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 4
    for (int h = 0; h < kH; ++h) sum[r][h] = V::load(context + r * head_dim + h * V::kLanes);
  }
  for (int64_t i = 0; i < keys; ++i) {
    typename V::Floats value[kH];
#pragma GCC unroll 4
    for (int h = 0; h < kH; ++h) value[h] = V::load(values + i * head_dim + h * V::kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < kR; ++r) {
      const auto weight = V::all_lanes(weights[r * kMostEntries + i]);
#pragma GCC unroll 4
      for (int h = 0; h < kH; ++h) sum[r][h] = V::fma(value[h], weight, sum[r][h]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 4
    for (int h = 0; h < kH; ++h) V::store(context + r * head_dim + h * V::kLanes, sum[r][h]);
  }
}

// One row's scores of keys [0, keys) become weights against the largest score so far; those that it
// does not see, outside [first, last), become 0. Its sum and context so far shrink likewise.
template <class V>
void weigh_row(float* scores, int64_t keys, int64_t first, int64_t last, float* max, float* sum,
               float* context, int64_t head_dim) {
  for (int64_t i = 0; i < keys; ++i) {
    if (i < first || i >= last) scores[i] = 0;
  }
  if (first >= last) return;
  float most = *max;
  for (int64_t i = first; i < last; ++i) {
    if (!(scores[i] <= most)) most = most != most ? most : scores[i];  // a NaN is not lost
  }
  const float before = *max == most ? 1.0F : __builtin_expf(*max - most);
  *max = most;
  float all = 0;
  const int64_t begin = first / V::kLanes * V::kLanes;
  for (int64_t i = begin; i < last; i += V::kLanes) {
    V::store(scores + i, exp_of<V>(V::add(V::load(scores + i), V::all_lanes(-most))));
  }
  for (int64_t i = begin; i < first; ++i) scores[i] = 0;
  const int64_t end = (last + V::kLanes - 1) / V::kLanes * V::kLanes;
  for (int64_t i = last; i < end; ++i) scores[i] = 0;
  for (int64_t i = first; i < last; ++i) all += scores[i];
  *sum = *sum * before + all;
  if (before == 1.0F) return;
  for (int64_t h = 0; h < head_dim; h += V::kLanes) {
    V::store(context + h, V::multiply(V::load(context + h), V::all_lanes(before)));
  }
}

template <class V>
void mix_rows(const AttentionBlock& b, int64_t first, int64_t keys) {
  constexpr int kR = 4, kH = 4;
  constexpr int64_t kKeys = 64;  // of which kH registers of values stay near while rows pass
  for (int64_t i = 0; i < keys; i += kKeys) {
    const int64_t some = keys - i < kKeys ? keys - i : kKeys;
    for (int64_t h = 0; h < b.head_dim;) {
      const float* values = b.values + (first + i) * b.head_dim + h;
      const bool wide = h + kH * V::kLanes <= b.head_dim;
      for (int64_t r = 0; r < b.rows; r += kR) {
        const float* weights = b.scores + r * kMostEntries + i;
        float* context = b.context + r * b.head_dim + h;
        if (wide) {
          mix_tile<V, kR, kH>(values, some, b.head_dim, weights, context);
        } else {
          mix_tile<V, kR, 1>(values, some, b.head_dim, weights, context);
        }
      }
      h += wide ? kH * V::kLanes : V::kLanes;
    }
  }
}

template <class V>
void attend_block(const AttentionBlock& b) {
  for (int64_t first = b.begin / V::kLanes * V::kLanes; first < b.end; first += kMostEntries) {
    const int64_t keys = b.end - first < kMostEntries ? b.end - first : kMostEntries;
    for (int64_t at = 0; at < keys;) {
      const float* tile = b.keys + (first + at) * b.head_dim;
      const bool two = at + 2 * V::kLanes <= kMostEntries && at + V::kLanes < keys;
      for (int64_t r = 0; r < b.rows; r += kRowsOfQ) {
        float* scores = b.scores + r * kMostEntries + at;
        if (two) {
          score_tile<V, 2>(tile, b.q + r * b.head_dim, b.head_dim, scores);
        } else {
          score_tile<V, 1>(tile, b.q + r * b.head_dim, b.head_dim, scores);
        }
      }
      at += two ? 2 * V::kLanes : V::kLanes;
    }
    for (int64_t r = 0; r < b.rows; ++r) {
      const auto within = [&](int64_t key) {
        return key < first ? 0 : (key - first < keys ? key - first : keys);
      };
      weigh_row<V>(b.scores + r * kMostEntries, keys, within(b.row_begin[r]), within(b.row_end[r]),
                   b.max + r, b.sum + r, b.context + r * b.head_dim, b.head_dim);
    }
    mix_rows<V>(b, first, keys);
  }
}

// --- the largest of many numbers

template <class V>
Largest largest(const float* x, int64_t count) {
  float most = x[0];
  int64_t i = 0;
  if (count >= V::kLanes) {
    auto top = V::load(x);
    for (; i + V::kLanes <= count; i += V::kLanes) top = V::max(V::load(x + i), top);
    float lanes[V::kLanes];
    V::store(lanes, top);
    for (int64_t j = 0; j < V::kLanes; ++j) most = lanes[j] > most ? lanes[j] : most;
  }
  for (; i < count; ++i) most = x[i] > most ? x[i] : most;
  Largest out{most, 0, 0};
  while (out.index + 1 < count && x[out.index] != most) ++out.index;
  auto sum = V::zero(), not_finite = V::zero();
  for (i = 0; i + V::kLanes <= count; i += V::kLanes) {
    const auto v = V::load(x + i);
    sum = V::add(sum, exp_of<V>(V::add(v, V::all_lanes(-most))));
    not_finite = V::fma(v, V::zero(), not_finite);
  }
  out.sum = V::sum(V::add(sum, not_finite));
  for (; i < count; ++i) out.sum += __builtin_expf(x[i] - most) + x[i] * 0.0F;
  return out;
}

template <class V>
constexpr AttentionKernels make_attention() {
  return {V::kLanes,
          {attend<V, Float::kF32>, attend<V, Float::kF16>, attend<V, Float::kBF16>,
           attend<V, Float::kS8>},
          attend_block<V>};
}

}  // namespace mt::kernels
