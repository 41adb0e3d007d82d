#include "kernels/pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

namespace mt::kernels {
namespace {

constexpr uint32_t kOpen = 1U << 31;
// Longer than XLA needs from one kernel of a layer to the next, shorter than a time slice.
constexpr std::chrono::microseconds kSpin{100};

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

Pool::Pool(int threads) : shares_(static_cast<size_t>(std::max(1, threads))) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { serve(i); });
}

Pool::~Pool() {
  stopping_ = true;
  loops_.fetch_add(1);
  loops_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Pool::run(int64_t tasks, const Work& work) {
  const std::unique_lock<std::mutex> lock(loop_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || tasks <= 1 || workers_.empty()) {
    for (int64_t i = 0; i < tasks; ++i) work(i, 0);
    return;
  }
  work_ = &work;
  for (int64_t i = 0; i < threads(); ++i) {
    Share& share = shares_[static_cast<size_t>(i)];
    share.next.store(tasks * i / threads(), std::memory_order_relaxed);
    share.end = tasks * (i + 1) / threads();
  }
  state_.store(kOpen, std::memory_order_release);
  loops_.fetch_add(1, std::memory_order_release);
  loops_.notify_all();
  take_tasks(0);
  state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  while (state_.load(std::memory_order_acquire) != 0) pause();
}

void Pool::take_tasks(int thread) {
  const int all = threads();
  for (int i = 0; i < all; ++i) {
    Share& share = shares_[static_cast<size_t>((thread + i) % all)];
    for (int64_t task = share.next.fetch_add(1, std::memory_order_relaxed); task < share.end;
         task = share.next.fetch_add(1, std::memory_order_relaxed)) {
      (*work_)(task, thread);
    }
  }
}

void Pool::serve(int thread) {
  uint32_t seen = 0;
  while (await_loop(seen)) {
    seen = loops_.load(std::memory_order_acquire);
    uint32_t state = state_.load(std::memory_order_acquire);
    while ((state & kOpen) != 0 &&
           !state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) {
    }
    if ((state & kOpen) == 0) continue;  // over already
    take_tasks(thread);
    state_.fetch_sub(1, std::memory_order_release);
  }
}

// Returns when there has been a loop since the one numbered `seen`; false to end the thread.
bool Pool::await_loop(uint32_t seen) {
  const auto give_up = std::chrono::steady_clock::now() + kSpin;
  for (int i = 1; loops_.load(std::memory_order_acquire) == seen; ++i) {
    pause();
    if (i % 32 == 0 && std::chrono::steady_clock::now() > give_up) {
      loops_.wait(seen, std::memory_order_acquire);
    }
  }
  return !stopping_;
}

Pool& shared_pool() {
  static Pool* pool = new Pool(usable_cpus());
  return *pool;
}

}  // namespace mt::kernels
