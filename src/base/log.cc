#include "base/log.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/visible.h"

namespace mt {
namespace {

// One lock for the process: lines from all threads share the same two streams.
struct LogState {
  std::mutex mutex;
  std::function<void()> before;
  std::function<void()> after;
  bool hooked = false;
};

LogState& state() {
  static LogState log;
  return log;
}

std::atomic<bool> to_stderr{false};

void write_line(std::FILE* stream, std::string_view prefix, std::string_view text) {
  std::string line;
  line.reserve(prefix.size() + text.size() + 1);
  line.append(prefix).append(visible(text)).push_back('\n');
  LogState& log = state();
  std::lock_guard lock(log.mutex);
  if (log.hooked) log.before();
  // A log that can't be written (closed pipe, full disk) is no reason to end a run.
  std::fwrite(line.data(), 1, line.size(), stream);
  std::fflush(stream);
  if (log.hooked) log.after();
}

}  // namespace

void log_text(std::string_view text) { write_line(to_stderr ? stderr : stdout, "", text); }

void warn_text(std::string_view text) { write_line(stderr, "warning: ", text); }

void error_text(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  write_line(stderr, "maxtext: error: ", text);
}

LogToStderr::LogToStderr() { MT_CHECK(!to_stderr.exchange(true)); }
LogToStderr::~LogToStderr() { to_stderr = false; }

void hold_standard_streams() {
  for (const int fd : {0, 1, 2}) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number is this one. The wrong mode keeps it useless, as a closed one is.
    static_cast<void>(::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY));
  }
}

LogHook::LogHook(std::function<void()> before, std::function<void()> after) {
  LogState& log = state();
  std::lock_guard lock(log.mutex);
  if (log.hooked) throw fail(ErrorKind::kConfig, "the log has a hook already");
  log.before = std::move(before);
  log.after = std::move(after);
  log.hooked = true;
}

LogHook::~LogHook() {
  LogState& log = state();
  std::lock_guard lock(log.mutex);
  log.hooked = false;
  log.before = nullptr;
  log.after = nullptr;
}

void with_log_lock(const std::function<void()>& action) {
  std::lock_guard lock(state().mutex);
  action();
}

}  // namespace mt
