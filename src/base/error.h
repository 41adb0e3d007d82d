// Errors: one exception type, caught in main, per request, and in tests (docs/DECISIONS.md).
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "base/visible.h"

namespace mt {

enum class ErrorKind {
  kShape,      // shape or dtype mistake while a program is being traced
  kConfig,     // a flag, key or file that the user wrote
  kIo,         // a file that can't be read, or whose bytes are wrong
  kDevice,     // a PJRT plugin or device said no
  kLimit,      // does not fit: memory, sizes
  kCancelled,  // stopped by a signal or by a client
};

class Error : public std::runtime_error {
 public:
  // Shows control characters of the message: names and values in it come from files.
  Error(ErrorKind kind, const std::string& message)
      : std::runtime_error(visible(message)), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// throw fail(ErrorKind::kIo, "{}: not a GGUF file", path);
template <typename... Args>
Error fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  return Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace mt

// For our own bugs only: aborts. Never reachable from a file, flag, request or device.
#define MT_CHECK(condition) \
  ((condition) ? (void)0 : ::mt::check_failed(__FILE__, __LINE__, #condition))
