#include "train/progress.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace mt::train {
namespace {

// What a terminal of `columns` shows after `bytes`: the lines, trailing blanks dropped. Knows what
// the bar uses: \r, \n, erase to the end of the line, colours. A full line wraps.
std::vector<std::string> screen(const std::string& bytes, size_t columns) {
  std::vector<std::string> lines(1);
  size_t column = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == '\x1b') {
      const size_t end = bytes.find_first_of("Km", i);
      if (bytes[end] == 'K') lines.back().resize(std::min(column, lines.back().size()));
      i = end;
    } else if (bytes[i] == '\r') {
      column = 0;
    } else if (bytes[i] == '\n') {
      lines.emplace_back();
    } else {
      if (column == columns) {
        lines.emplace_back();
        column = 0;
      }
      if (lines.back().size() <= column) lines.back().resize(column + 1, ' ');
      lines.back()[column++] = bytes[i];
    }
  }
  return lines;
}

struct Terminal {
  std::string bytes;
  int exit_code = -1;
};

// Runs `body` with a pseudo-terminal of `columns` as stdin, stdout and stderr.
template <typename Body>
Terminal on_terminal(unsigned short columns, Body body) {
  winsize size = {.ws_row = 24, .ws_col = columns};
  int master = -1;
  const pid_t child = ::forkpty(&master, nullptr, nullptr, &size);
  if (child == 0) {
    ::setenv("TERM", "xterm", 1);
    ::unsetenv("NO_COLOR");
    body();
    ::_exit(0);
  }
  Terminal terminal;
  char piece[512];
  for (ssize_t n; (n = ::read(master, piece, sizeof(piece))) > 0;) {
    terminal.bytes.append(piece, static_cast<size_t>(n));
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  terminal.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  ::close(master);
  return terminal;
}

constexpr ProgressState kState = {
    .done = 12, .total = 100, .seconds_per_step = 1.23, .loss = 12.574};

TEST(Progress, WholeLine) {
  EXPECT_EQ(render_progress(kState, 120, false),
            "step 12/100 [===>                        ] 12%  loss 12.574  1:48 left  1.23 s/step");
}

TEST(Progress, NeverWiderThanTheTerminal) {
  EXPECT_EQ(render_progress(kState, 61, false),
            "step 12/100 [>     ] 12%  loss 12.574  1:48 left  1.23 s/step");
  EXPECT_EQ(render_progress(kState, 60, false),
            "step 12/100 12%  loss 12.574  1:48 left  1.23 s/step");
  EXPECT_EQ(render_progress(kState, 30, false), "step 12/100 12%  loss 12.574");
  EXPECT_EQ(render_progress(kState, 5, false), "step ");
  for (int width = 0; width < 150; ++width) {
    EXPECT_LE(render_progress(kState, width, false).size(), static_cast<size_t>(width));
  }
}

TEST(Progress, ColorAddsNothingButColor) {
  const std::string colored = render_progress(kState, 80, true);
  EXPECT_NE(colored.find("\x1b[32m["), std::string::npos);
  EXPECT_EQ(screen(colored, 100)[0], render_progress(kState, 80, false));
}

TEST(Progress, StartEndAndOddNumbers) {
  EXPECT_EQ(render_progress({.done = 0, .total = 10}, 80, false),
            "step 0/10 [>                           ] 0%");
  EXPECT_EQ(
      render_progress({.done = 10, .total = 10, .seconds_per_step = 0.02, .loss = 2}, 80, false),
      "step 10/10 [==========================] 100%  loss 2.000  0 s left  50.0 steps/s");
  EXPECT_NE(
      render_progress({.done = 1, .total = 2, .loss = -std::nan("")}, 80, false).find("loss nan"),
      std::string::npos);
  EXPECT_NE(render_progress({.done = 1, .total = 150001, .seconds_per_step = 2}, 80, false)
                .find("3 d 11 h left"),
            std::string::npos);
  EXPECT_NE(render_progress({.done = 0, .total = 5000, .seconds_per_step = 1}, 80, false)
                .find("1:23:20 left"),
            std::string::npos);
}

TEST(Progress, LogLinesStandAboveTheBarOnATerminal) {
  const Terminal terminal = on_terminal(60, [] {
    ProgressBar bar(0, 4);
    if (!bar.visible()) ::_exit(1);
    for (int step = 0; step < 4; ++step) {
      log_line("completed step: {}", step);
      bar.update(step + 1, step == 0 ? 60.0 : 2.0, 3.5);
    }
    log_line("last");
    ::fflush(stdout);
    ::dprintf(STDERR_FILENO, "@");  // marks where the bar still stands
  });
  EXPECT_EQ(terminal.exit_code, 0);
  const std::string before_end = terminal.bytes.substr(0, terminal.bytes.find('@'));
  const std::vector<std::string> lines = screen(before_end, 60);
  const std::vector<std::string> wanted = {
      "completed step: 0",
      "completed step: 1",
      "completed step: 2",
      "completed step: 3",
      "last",
      "step 4/4 [========] 100%  loss 3.500  0 s left  2.00 s/step"};
  EXPECT_EQ(lines, wanted);
}

TEST(Progress, ClearsItsLineAtTheEndAndNeverWraps) {
  const Terminal terminal = on_terminal(20, [] {
    {
      ProgressBar bar(0, 4);
      bar.update(1, 1.0, 3.5);
      bar.update(2, 1.0, 3.5);
    }
    log_line("done");
  });
  const std::vector<std::string> wanted = {"done", ""};
  EXPECT_EQ(screen(terminal.bytes, 20), wanted);
}

TEST(Progress, NoColorIsRespected) {
  const auto run = [](const char* value) {
    return on_terminal(80, [value] {
      ::setenv("NO_COLOR", value, 1);
      ProgressBar bar(0, 4);
      bar.update(1, 1.0, 3.5);
    });
  };
  EXPECT_EQ(run("1").bytes.find("\x1b[32m"), std::string::npos);
  EXPECT_NE(run("").bytes.find("\x1b[32m"), std::string::npos);
}

TEST(Progress, DumbTerminalGetsNoBar) {
  const Terminal terminal = on_terminal(80, [] {
    ::setenv("TERM", "dumb", 1);
    ProgressBar bar(0, 4);
    bar.update(1, 1.0, 3.5);
    log_line("plain");
  });
  EXPECT_EQ(terminal.bytes, "plain\r\n");
}

TEST(Progress, NoBarInAPipe) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  {
    ProgressBar bar(0, 4, ends[1]);
    EXPECT_FALSE(bar.visible());
    bar.update(1, 1.0, 3.5);
  }
  ::close(ends[1]);
  char byte;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);
  ::close(ends[0]);
}

}  // namespace
}  // namespace mt::train
