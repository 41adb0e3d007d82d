#include "base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace mt {
namespace {

TEST(Log, LineGoesToStdoutAndWarningToStderr) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  log_line("step {} of {}", 3, 10);
  log_text("{} as it stands");
  log_warning("{} is odd", "x");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "step 3 of 10\n{} as it stands\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "warning: x is odd\n");
}

TEST(Log, LinesMayGoToStderrForAWhile) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    const LogToStderr here;
    log_text("memory");
  }
  log_text("after");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "after\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "memory\n");
}

TEST(Log, LinesOfThreadsStayWhole) {
  testing::internal::CaptureStdout();
  std::vector<std::thread> threads;
  for (char letter = 'a'; letter < 'e'; ++letter) {
    threads.emplace_back([letter] {
      for (int i = 0; i < 200; ++i) log_text(std::string(100, letter));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = testing::internal::GetCapturedStdout();
  ASSERT_EQ(text.size(), 4u * 200 * 101);
  for (size_t start = 0; start < text.size(); start += 101) {
    ASSERT_EQ(text.substr(start, 101), std::string(100, text[start]) + "\n");
  }
}

TEST(Log, HookRunsAroundEveryLineWhileItLives) {
  std::string calls;
  testing::internal::CaptureStdout();
  {
    LogHook hook([&] { calls += "<"; }, [&] { calls += ">"; });
    log_line("one");
    log_warning("two");
    with_log_lock([&] { calls += "="; });
  }
  log_line("three");
  testing::internal::GetCapturedStdout();
  EXPECT_EQ(calls, "<><>=");
}

TEST(Log, OneHookAtATime) {
  const LogHook first([] {}, [] {});
  try {
    const LogHook second([] {}, [] {});
    FAIL() << "a second hook was taken";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the log has a hook already");
  }
}

}  // namespace
}  // namespace mt
