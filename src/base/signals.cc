#include "base/signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string_view>

#include "base/error.h"

namespace mt {
namespace {

// What the handler touches: lock-free atomics only.
std::atomic<int> stop_signal{0};
std::atomic<bool> installed{false};
static_assert(std::atomic<int>::is_always_lock_free);

void say(std::string_view text) {
  // Nothing useful can be done in a handler when stderr is gone.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

void on_signal(int number) {
  const int saved_errno = errno;
  int none = 0;
  if (!stop_signal.compare_exchange_strong(none, number)) {
    say("\nstopped at once\n");
    ::_exit(128 + number);
  }
  say(number == SIGINT ? "\nSIGINT: stopping after this step; once more stops at once\n"
                       : "\nSIGTERM: stopping after this step; once more stops at once\n");
  errno = saved_errno;
}

void install(int number, struct sigaction& old) {
  MT_CHECK(::sigaction(number, nullptr, &old) == 0);
  if (old.sa_handler == SIG_IGN) return;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // reads and waits inside a step go on
  sigemptyset(&action.sa_mask);
  MT_CHECK(::sigaction(number, &action, nullptr) == 0);
}

}  // namespace

StopSignals::StopSignals() {
  MT_CHECK(!installed.exchange(true));
  stop_signal = 0;
  install(SIGINT, old_int_);
  install(SIGTERM, old_term_);
}

StopSignals::~StopSignals() {
  ::sigaction(SIGINT, &old_int_, nullptr);
  ::sigaction(SIGTERM, &old_term_, nullptr);
  stop_signal = 0;
  installed = false;
}

bool StopSignals::requested() const { return stop_requested(); }
int StopSignals::signal_number() const { return stop_signal; }

const char* StopSignals::name() const {
  const int number = stop_signal;
  return number == SIGINT ? "SIGINT" : number == SIGTERM ? "SIGTERM" : "";
}

bool stop_requested() { return stop_signal != 0; }

}  // namespace mt
