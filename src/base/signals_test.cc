#include "base/signals.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace mt {
namespace {

struct ChildEnd {
  int status = 0;  // as waitpid gives it
  std::string stderr_text;
};

// Runs `body` in a child process and returns how it ended and what it wrote to stderr.
template <typename Body>
ChildEnd in_child(Body body) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::_exit(body());
  }
  ::close(ends[1]);
  ChildEnd end;
  char piece[256];
  for (ssize_t n; (n = ::read(ends[0], piece, sizeof(piece))) > 0;) {
    end.stderr_text.append(piece, static_cast<size_t>(n));
  }
  ::close(ends[0]);
  EXPECT_EQ(::waitpid(child, &end.status, 0), child);
  return end;
}

const std::vector<std::pair<int, std::string>> kAll{
    {SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}};

TEST(StopSignals, NothingAskedAtTheStart) {
  StopSignals signals("step");
  EXPECT_FALSE(signals.requested());
  EXPECT_EQ(signals.signal_number(), 0);
  EXPECT_STREQ(signals.name(), "");
}

TEST(StopSignals, FirstSignalOnlyAsks) {
  for (const auto& [number, name] : kAll) {
    const ChildEnd end = in_child([&] {
      StopSignals signals("step");
      signals.begin();
      ::raise(number);
      return signals.requested() && stop_requested() && signals.signal_number() == number &&
                     signals.name() == name
                 ? 7
                 : 1;
    });
    ASSERT_TRUE(WIFEXITED(end.status));
    EXPECT_EQ(WEXITSTATUS(end.status), 7);
    EXPECT_EQ(end.stderr_text, name + ": stopping after this step; once more stops at once\n");
  }
}

TEST(StopSignals, TheSetUpEndsWithALine) {
  for (const auto& [number, name] : kAll) {
    const ChildEnd end = in_child([number = number] {
      const StopSignals signals("token");
      ::raise(number);
      return 7;
    });
    ASSERT_TRUE(WIFEXITED(end.status));
    EXPECT_EQ(WEXITSTATUS(end.status), 128 + number);
    EXPECT_EQ(end.stderr_text, name + ": stopped before the first token\n");
  }
}

TEST(StopSignals, SecondSignalEndsAtOnce) {
  const ChildEnd end = in_child([] {
    StopSignals signals("step");
    signals.begin();
    ::raise(SIGINT);
    ::raise(SIGINT);
    return 7;
  });
  ASSERT_TRUE(WIFEXITED(end.status));
  EXPECT_EQ(WEXITSTATUS(end.status), 130);
  EXPECT_NE(end.stderr_text.find("stopped at once\n"), std::string::npos);
}

TEST(StopSignals, OldHandlerIsBackAfterwards) {
  const ChildEnd end = in_child([] {
    { const StopSignals signals("step"); }
    ::raise(SIGTERM);
    return 7;
  });
  ASSERT_TRUE(WIFSIGNALED(end.status));
  EXPECT_EQ(WTERMSIG(end.status), SIGTERM);
  EXPECT_EQ(end.stderr_text, "");
}

TEST(StopSignals, IgnoredSignalStaysIgnored) {
  const ChildEnd end = in_child([] {
    ::signal(SIGINT, SIG_IGN);
    StopSignals signals("step");
    ::raise(SIGINT);
    return signals.requested() ? 1 : 7;
  });
  ASSERT_TRUE(WIFEXITED(end.status));
  EXPECT_EQ(WEXITSTATUS(end.status), 7);
}

TEST(FileSize, TheLimitIsAnErrorOfTheFile) {
  const ChildEnd end = in_child([] {
    ignore_file_size_signal();
    const rlimit limit{16, 16};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string path = "/tmp/mt_file_size." + std::to_string(::getpid());
    try {
      write_file(path, std::string(100, 'x'));
    } catch (const Error& error) {
      const std::string text = error.what();
      return text.starts_with(path) && text.ends_with("File too large") ? 7 : 2;
    }
    return 1;
  });
  ASSERT_TRUE(WIFEXITED(end.status)) << "killed by " << WTERMSIG(end.status);
  EXPECT_EQ(WEXITSTATUS(end.status), 7);
}

TEST(StopSignals, NewObjectStartsClean) {
  const ChildEnd end = in_child([] {
    {
      StopSignals signals("step");
      signals.begin();
      ::raise(SIGINT);
    }
    StopSignals signals("step");
    return signals.requested() ? 1 : 7;
  });
  EXPECT_EQ(WEXITSTATUS(end.status), 7);
}

}  // namespace
}  // namespace mt
