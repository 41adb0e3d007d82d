#include "base/signals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

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

TEST(StopSignals, NothingAskedAtTheStart) {
  const StopSignals signals;
  EXPECT_FALSE(signals.requested());
  EXPECT_EQ(signals.signal_number(), 0);
  EXPECT_STREQ(signals.name(), "");
}

TEST(StopSignals, FirstSignalOnlyAsks) {
  for (const int number : {SIGINT, SIGTERM}) {
    const std::string name = number == SIGINT ? "SIGINT" : "SIGTERM";
    const ChildEnd end = in_child([&] {
      const StopSignals signals;
      ::raise(number);
      return signals.requested() && stop_requested() && signals.signal_number() == number &&
                     signals.name() == name
                 ? 7
                 : 1;
    });
    ASSERT_TRUE(WIFEXITED(end.status));
    EXPECT_EQ(WEXITSTATUS(end.status), 7);
    EXPECT_EQ(end.stderr_text,
              "\n" + name + ": stopping after this step; once more stops at once\n");
  }
}

TEST(StopSignals, SecondSignalEndsAtOnce) {
  const ChildEnd end = in_child([] {
    const StopSignals signals;
    ::raise(SIGINT);
    ::raise(SIGINT);
    return 7;
  });
  ASSERT_TRUE(WIFEXITED(end.status));
  EXPECT_EQ(WEXITSTATUS(end.status), 130);
  EXPECT_NE(end.stderr_text.find("\nstopped at once\n"), std::string::npos);
}

TEST(StopSignals, OldHandlerIsBackAfterwards) {
  const ChildEnd end = in_child([] {
    { const StopSignals signals; }
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
    const StopSignals signals;
    ::raise(SIGINT);
    return signals.requested() ? 1 : 7;
  });
  ASSERT_TRUE(WIFEXITED(end.status));
  EXPECT_EQ(WEXITSTATUS(end.status), 7);
}

TEST(StopSignals, NewObjectStartsClean) {
  const ChildEnd end = in_child([] {
    {
      const StopSignals signals;
      ::raise(SIGINT);
    }
    const StopSignals signals;
    return signals.requested() ? 1 : 7;
  });
  EXPECT_EQ(WEXITSTATUS(end.status), 7);
}

}  // namespace
}  // namespace mt
