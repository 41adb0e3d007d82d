// Threads for short loops: a token of a small model takes hundreds of them, some of 20 µs.
//
// The calling thread works too. The others wait for the next loop by watching a counter for a while
// (kSpin) and then sleep. A loop never waits for a thread that has not woken: one that comes late
// finds the loop closed. Loops that are started while another runs (several devices of one process)
// run on their caller alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace mt::kernels {

class Pool {
 public:
  explicit Pool(int threads);  // the caller included; at least 1
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls work(task, thread) once for every task in [0, tasks), in any order, each thread beginning
  // at a place of its own; `thread` is in
  // [0, threads()) and no two calls at the same time have the same. Returns when all are done.
  // `work` must not throw.
  using Work = std::function<void(int64_t task, int thread)>;
  void run(int64_t tasks, const Work& work);

 private:
  void serve(int thread);
  bool await_loop(uint32_t seen);
  void take_tasks(int thread);

  std::mutex loop_mutex_;  // held by the caller whose loop runs
  const Work* work_ = nullptr;
  // A thread takes the tasks of its own share one after the other, which lie side by side in memory
  // where the tasks' numbers do, and then what is left of others'.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  std::vector<Share> shares_;
  alignas(64) std::atomic<uint32_t> state_{0};  // kOpen, plus the number of workers inside
  alignas(64) std::atomic<uint32_t> loops_{0};  // counts loops; what workers watch
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

// The pool of this process's kernels, with a thread for each CPU that the process may use. It is
// never taken down: XLA may still be inside a kernel when the process ends.
Pool& shared_pool();

}  // namespace mt::kernels
