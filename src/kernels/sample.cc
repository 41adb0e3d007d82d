#include "kernels/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "base/random.h"
#include "kernels/greedy.h"

namespace mt::kernels {
namespace {

struct Candidate {
  float value;
  int32_t token;
};
// The more likely one first; of equals the first of the vocabulary.
bool before(const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.token < b.token;
}

// One row's logits, and what choosing from them needs.
struct Row {
  std::span<const float> x;
  int32_t best = 0;  // the first of the largest
  float largest = 0;
  float sum = 0;  // of e^(x - largest)
};

// Every entry of at least `bound`, in the vocabulary's order.
std::vector<Candidate> at_least(std::span<const float> x, float bound) {
  constexpr size_t kTogether = 32;  // nearly all of which have none
  std::vector<Candidate> out;
  for (size_t i = 0; i < x.size(); i += kTogether) {
    const size_t end = std::min(x.size(), i + kTogether);
    int any = 0;
    for (size_t j = i; j < end; ++j) any |= x[j] >= bound ? 1 : 0;
    for (size_t j = i; any != 0 && j < end; ++j) {
      if (x[j] >= bound) out.push_back({x[j], static_cast<int32_t>(j)});
    }
  }
  return out;
}

// The entries above a bound that is lowered until `enough` of them are there.
template <class Enough>
std::vector<Candidate> likeliest(const Row& row, const Enough& enough) {
  for (const float depth : {8.0F, 16.0F, 32.0F}) {
    std::vector<Candidate> out = at_least(row.x, row.largest - depth);
    if (enough(out)) return out;
  }
  return at_least(row.x, -std::numeric_limits<float>::infinity());
}

// The k largest, and equals of the last one.
std::vector<Candidate> top(const Row& row, size_t k) {
  std::vector<Candidate> out =
      likeliest(row, [&](const std::vector<Candidate>& c) { return c.size() >= k; });
  if (out.size() <= k) return out;
  const auto last = out.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(out.begin(), last, out.end(), before);
  const float bound = last->value;
  std::erase_if(out, [&](const Candidate& c) { return c.value < bound; });
  return out;
}

double weight_of(const std::vector<Candidate>& c, float largest) {
  double sum = 0;
  for (const Candidate& x : c) sum += std::exp(static_cast<double>(x.value - largest));
  return sum;
}

// The most likely that together have `wanted` of the weight; all if they never do.
std::vector<Candidate> nucleus(std::vector<Candidate> c, float largest, double wanted) {
  double sum = 0;
  size_t sorted = 0;
  for (size_t size = 256; sorted < c.size(); size *= 4) {  // seldom more than some hundred
    const size_t end = std::min(size, c.size());
    const auto from = c.begin() + static_cast<std::ptrdiff_t>(sorted),
               to = c.begin() + static_cast<std::ptrdiff_t>(end);
    std::partial_sort(from, to, c.end(), before);
    for (; sorted < end; ++sorted) {
      sum += std::exp(static_cast<double>(c[sorted].value - largest));
      if (sum < wanted) continue;
      const float bound = c[sorted].value;
      std::erase_if(c, [&](const Candidate& x) { return x.value < bound; });
      return c;
    }
  }
  return c;
}

// What a row's limits leave, and only if it has any.
std::vector<Candidate> limited(const Row& row, const float* settings) {
  const float k = settings[kSampleTopK], p = settings[kSampleNucleusP],
              least = row.largest + std::log(settings[kSampleMinP]);
  std::vector<Candidate> out;
  if (k > 0) out = top(row, static_cast<size_t>(k));
  if (p > 0 && p < 1) {
    const double all = k > 0 ? weight_of(out, row.largest) : static_cast<double>(row.sum);
    const double wanted = static_cast<double>(p) * all;
    if (!(k > 0)) {
      out = likeliest(row, [&](const std::vector<Candidate>& c) {
        return weight_of(c, row.largest) >= wanted;
      });
    }
    out = nucleus(std::move(out), row.largest, wanted);
  } else if (!(k > 0)) {
    return at_least(row.x, least);
  }
  std::erase_if(out, [&](const Candidate& c) { return !(c.value >= least); });
  return out;
}

// -log(-log(u)), of a uniform number in (0, 1) as ir::random_uniform(key, ..., 2^-24, 1) has it.
float noise(RandomKey key, int32_t token) {
  const uint32_t bits = random_bits_at(key, static_cast<uint64_t>(token)) >> 9;
  const float from_0 = static_cast<float>(bits) * 0x1p-23F;
  const float u = std::max(from_0 * (1.0F - 0x1p-24F) + 0x1p-24F, 0x1p-24F);
  return -std::log(-std::log(u));
}
constexpr float kMostNoise = 17;  // above -log(-log(1 - 2^-24))

struct Drawn {
  float value = -std::numeric_limits<float>::infinity();
  int32_t token = -1;
  void offer(float v, int32_t t) {
    if (v > value || (v == value && t < token) || token < 0) {
      value = v;
      token = t;
    }
  }
};

// No limits: only entries so near the largest that their noise could bring them to the front.
int32_t draw_from_all(const Row& row, float temperature, RandomKey key) {
  Drawn drawn;
  drawn.offer(row.largest / temperature + noise(key, row.best), row.best);
  float above = std::numeric_limits<float>::infinity();  // those are done
  for (const float depth : {2.0F, 2 * kMostNoise}) {
    // The largest quotient that could still win, rounded down.
    const float needed = (drawn.value - kMostNoise) * temperature;
    const float slack = 1e-5F * std::abs(needed);
    const float bound = std::max(row.largest - depth * temperature, needed - slack);
    for (const Candidate& c : at_least(row.x, bound)) {
      if (c.value < above) drawn.offer(c.value / temperature + noise(key, c.token), c.token);
    }
    above = bound;
  }
  return drawn.token;
}

// Some token where a NaN kept all from being offered.
int32_t draw(const Row& row, const float* settings, RandomKey key) {
  const float temperature = std::max(settings[kSampleTemperature], 1e-10F);
  const float p = settings[kSampleNucleusP];
  const bool limits = settings[kSampleTopK] > 0 || (p > 0 && p < 1) || settings[kSampleMinP] > 0;
  if (!limits) return draw_from_all(row, temperature, key);
  Drawn drawn;
  for (const Candidate& c : limited(row, settings)) {
    drawn.offer(c.value / temperature + noise(key, c.token), c.token);
  }
  return drawn.token >= 0 ? drawn.token : row.best;
}

// Of e^(x - largest), over what is not excluded by -infinity.
float sum_of_weights(std::span<const float> x, float largest) {
  double sum = 0;
  for (const float v : x) sum += std::exp(static_cast<double>(v - largest));
  return static_cast<float>(sum);
}

}  // namespace

void sample(const Engine& engine, const SampleBatch& batch, int32_t* token, float* log_prob) {
  const auto rows = static_cast<size_t>(batch.rows), size = static_cast<size_t>(batch.vocabulary);
  const auto settings = [&](size_t row) {
    return batch.settings + row * static_cast<size_t>(batch.columns);
  };
  bool adjusts = false;
  for (size_t i = 0; i < rows; ++i) adjusts = adjusts || settings(i)[kSampleAdjusts] != 0;
  greedy(engine, batch.logits, batch.rows, batch.vocabulary, token, log_prob);
  std::vector<int32_t> best(token, token + rows);
  std::vector<float> best_log_prob(log_prob, log_prob + rows);
  if (adjusts) {
    greedy(engine, batch.adjusted, batch.rows, batch.vocabulary, best.data(), best_log_prob.data());
  }
  engine.pool.run(batch.rows, [&](int64_t task, int) {
    const auto i = static_cast<size_t>(task);
    const bool drawn = settings(i)[kSampleTemperature] > 0;
    if ((!drawn && settings(i)[kSampleAdjusts] == 0) || std::isnan(log_prob[i])) return;
    int32_t chosen = best[i];
    if (drawn) {
      const std::span<const float> x(batch.adjusted + i * size, size);
      Row row{x, best[i], x[static_cast<size_t>(best[i])], std::exp(-best_log_prob[i])};
      if (std::isnan(row.sum)) row.sum = sum_of_weights(x, row.largest);
      chosen = draw(row, settings(i), {batch.keys[2 * i], batch.keys[2 * i + 1]});
    }
    const float* logits = batch.logits + i * size;
    log_prob[i] += logits[chosen] - logits[token[i]];
    token[i] = chosen;
  });
}

}  // namespace mt::kernels
