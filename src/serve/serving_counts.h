// What an orchestrator counts; /metrics shows it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace mt::serve {

// Cumulative buckets, as Prometheus has them.
struct Histogram {
  explicit Histogram(std::vector<double> upper_bounds)
      : bounds(std::move(upper_bounds)), buckets(bounds.size() + 1, 0) {}
  void observe(double x) {
    const auto at = std::lower_bound(bounds.begin(), bounds.end(), x) - bounds.begin();
    ++buckets[static_cast<size_t>(at)];
    sum += x;
    ++count;
  }
  std::vector<double> bounds;    // ascending
  std::vector<int64_t> buckets;  // of values up to each bound, and above the last
  double sum = 0;
  int64_t count = 0;
};

// Powers of two from `first`.
inline std::vector<double> doubling(double first, int count) {
  std::vector<double> out;
  for (int i = 0; i < count; ++i, first *= 2) out.push_back(first);
  return out;
}

struct ServingCounts {
  // Now.
  int64_t slots = 0, waiting = 0, filling = 0, generating = 0;
  int64_t tokens_held = 0, tokens_room = 0;  // in slots
  // Since the start.
  int64_t accepted = 0, refused = 0;  // requests by texts to generate
  int64_t finished = 0, cancelled = 0, expired = 0, faulty = 0, stopped = 0;  // of the accepted
  int64_t prompt_tokens = 0, reused_tokens = 0, output_tokens = 0, steps = 0;
  Histogram prompt_length{doubling(1, 18)}, output_length{doubling(1, 18)};
  Histogram queue_seconds{doubling(0.001, 18)};           // from submit to the first chunk
  Histogram first_token_seconds{doubling(0.001, 18)};     // from submit
  Histogram output_token_seconds{doubling(0.0005, 16)};   // the mean of a request, after its first
  Histogram prompt_token_seconds{doubling(0.00001, 18)};  // the mean of a request
  Histogram request_seconds{doubling(0.001, 20)};
};

}  // namespace mt::serve
