#include "checkpoint/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace mt::checkpoint {
namespace {

constexpr int64_t kMaxThreads = 16;  // reading and decoding are bound by memory beyond that

}  // namespace

void parallel_ranges(int64_t count, int64_t grain,
                     const std::function<void(int64_t begin, int64_t end)>& work) {
  const int64_t pieces = (count + grain - 1) / grain;
  const int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  const int64_t threads = std::min({pieces, cores, kMaxThreads});
  std::atomic<int64_t> next = 0;
  std::atomic<bool> failed = false;
  std::exception_ptr error;
  const auto run = [&] {
    for (int64_t i = next++; i < pieces && !failed; i = next++) {
      try {
        work(i * grain, std::min(count, (i + 1) * grain));
      } catch (...) {
        if (!failed.exchange(true)) error = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (int64_t i = 1; i < threads; ++i) others.emplace_back(run);
    run();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace mt::checkpoint
