// Lines for people: stdout for the run's log (or stderr: LogToStderr), stderr for warnings and
// errors. Thread safe and flushed line by line, so that a pipe or file shows a step when it is
// done. Control characters are shown, not sent (base/visible.h). A progress bar may hook in.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <string_view>
#include <utility>

namespace mt {

// Writes `text` and a newline to stdout in one piece, even when threads log at the same time.
void log_text(std::string_view text);
// The same on stderr, after "warning: ".
void warn_text(std::string_view text);
// One line on stderr, after "maxtext: error: ", whatever text a plugin or a file put into it.
void error_text(std::string text);

template <typename... Args>
void log_line(fmt::format_string<Args...> format, Args&&... args) {
  log_text(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  warn_text(fmt::format(format, std::forward<Args>(args)...));
}

// While it lives, `before` and `after` run around every line, under the log's lock: they must not
// log. One at a time; a second one throws kConfig.
class LogHook final {
 public:
  LogHook(std::function<void()> before, std::function<void()> after);
  ~LogHook();
  LogHook(const LogHook&) = delete;
  LogHook& operator=(const LogHook&) = delete;
};

// While it lives, log lines go to stderr: stdout is for what the command was asked for. One at a
// time.
class LogToStderr final {
 public:
  LogToStderr();
  ~LogToStderr();
  LogToStderr(const LogToStderr&) = delete;
  LogToStderr& operator=(const LogToStderr&) = delete;
};

// Opens those of the three standard streams that the parent closed, so that no file of ours gets
// their number and the log with it. Reading and writing them fails as before.
void hold_standard_streams();

// Runs `action` while no line is being written. `action` must not log.
void with_log_lock(const std::function<void()>& action);

}  // namespace mt
