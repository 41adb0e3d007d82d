#include "kernels/pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>

namespace mt::kernels {
namespace {

TEST(Pool, EveryTaskOnce) {
  for (const int threads : {1, 2, 5}) {
    Pool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t tasks : {0, 1, 2, 3, 1000}) {
      for (int repeat = 0; repeat < 50; ++repeat) {
        std::vector<std::atomic<int>> done(static_cast<size_t>(tasks));
        pool.run(tasks, [&](int64_t task, int thread) {
          EXPECT_TRUE(thread >= 0 && thread < threads);
          ++done[static_cast<size_t>(task)];
        });
        for (const auto& d : done) EXPECT_EQ(d, 1);
      }
    }
  }
}

TEST(Pool, ThreadNumbersAreApart) {
  Pool pool(4);
  std::vector<std::atomic<int>> inside(4);
  pool.run(2000, [&](int64_t, int thread) {
    EXPECT_EQ(inside[static_cast<size_t>(thread)]++, 0);
    EXPECT_EQ(--inside[static_cast<size_t>(thread)], 0);
  });
}

// The other threads wake up from sleep and take part.
TEST(Pool, ThreadsShareALongLoop) {
  Pool pool(2);
  for (int repeat = 0; repeat < 3; ++repeat) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> seen[2] = {};
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    pool.run(2, [&](int64_t, int thread) {  // each task waits until both threads have one
      ++seen[thread];
      while ((seen[0] == 0 || seen[1] == 0) && std::chrono::steady_clock::now() < end) {
        std::this_thread::yield();
      }
    });
    EXPECT_EQ(seen[0], 1);
    EXPECT_EQ(seen[1], 1);
  }
}

TEST(Pool, LoopsAtTheSameTimeAllFinish) {
  Pool pool(3);
  std::atomic<int64_t> sum = 0;
  std::vector<std::jthread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 200; ++repeat) {
        pool.run(10, [&](int64_t task, int) { sum += task; });
      }
    });
  }
  callers.clear();
  EXPECT_EQ(sum, 4 * 200 * 45);
}

TEST(Pool, TheSharedOneIsOne) { EXPECT_EQ(&shared_pool(), &shared_pool()); }

}  // namespace
}  // namespace mt::kernels
