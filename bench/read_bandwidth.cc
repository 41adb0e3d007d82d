// Prints as one JSON line what plain loops on all threads read from memory a second: the limit of a
// program that reads all its weights once a token. Best and median of the passes.
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

constexpr size_t kBytes = size_t{1} << 30;  // past any cache
constexpr int kPasses = 16;

size_t usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return static_cast<size_t>(std::max(1, CPU_COUNT(&set)));
}

// Sixteen sums at a time, as independent loads keep a core's memory accesses busy.
uint64_t read_all(const uint64_t* p, size_t count) {
  uint64_t sums[16] = {};
  for (size_t i = 0; i + 16 <= count; i += 16) {
    for (size_t j = 0; j < 16; ++j) sums[j] += p[i + j];
  }
  uint64_t all = 0;
  for (const uint64_t s : sums) all += s;
  return all;
}

// Seconds of each pass; a pass ends when the last thread has read its share.
std::vector<double> read_in_turns(const uint64_t* words, size_t threads) {
  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> times;
  times.reserve(kPasses + 1);  // no new memory between two readings
  std::vector<uint64_t> sums(threads);
  std::barrier line(static_cast<std::ptrdiff_t>(threads),
                    [&]() noexcept { times.push_back(Clock::now()); });
  const size_t share = kBytes / sizeof(uint64_t) / threads;
  const auto work = [&](size_t thread) {
    for (int i = 0; i < kPasses; ++i) {
      line.arrive_and_wait();
      sums[thread] += read_all(words + thread * share, share);
    }
    line.arrive_and_wait();
  };
  std::vector<std::thread> others;
  for (size_t t = 1; t < threads; ++t) others.emplace_back(work, t);
  work(0);
  for (std::thread& other : others) other.join();
  for (const uint64_t sum : sums) {
    if (sum == 1) std::fprintf(stderr, " ");  // the sums are used
  }
  std::vector<double> seconds;
  for (size_t i = 1; i < times.size(); ++i) {
    seconds.push_back(std::chrono::duration<double>(times[i] - times[i - 1]).count());
  }
  return seconds;
}

}  // namespace

int main() {
  void* memory =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("read_bandwidth: 1 GiB of memory");
    return 1;
  }
  ::madvise(memory, kBytes, MADV_HUGEPAGE);  // the limit, so without page walks
  auto* words = static_cast<uint64_t*>(memory);
  for (size_t i = 0; i < kBytes / sizeof(uint64_t); ++i) words[i] = i;
  const size_t threads = usable_cpus();
  std::vector<double> seconds = read_in_turns(words, threads);
  std::sort(seconds.begin(), seconds.end());
  const double size = static_cast<double>(kBytes / threads * threads) / 1e9;
  std::printf("{\"threads\": %zu, \"best_gb_per_second\": %.2f, \"median_gb_per_second\": %.2f}\n",
              threads, size / seconds[0], size / seconds[seconds.size() / 2]);
  return 0;
}
