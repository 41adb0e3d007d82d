#include "base/signals.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace mt {
namespace {

constexpr std::array<std::pair<int, const char*>, 3> kSignals{
    {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}}};

// A handler may not allocate: its lines are made before it is installed.
struct Lines {
  std::array<std::string, kSignals.size()> ended, asked;
  std::string at_once;
};

// What the handler touches: lock-free atomics, and lines that nobody changes while it is installed.
std::atomic<int> stop_signal{0};
std::atomic<bool> begun{false};
std::atomic<bool> installed{false};
static_assert(std::atomic<int>::is_always_lock_free);

Lines& lines() {
  static Lines all;
  return all;
}
Lines* handler_lines = nullptr;

const char* signal_name(int number) {
  for (const auto& [n, name] : kSignals) {
    if (n == number) return name;
  }
  return "";
}

void say(std::string_view text) {
  // Nothing useful can be done in a handler when stderr is gone.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

void on_signal(int number) {
  const int saved_errno = errno;
  const size_t i = number == SIGINT ? 0 : number == SIGTERM ? 1 : 2;
  if (!begun) {
    say(handler_lines->ended[i]);
    ::_exit(128 + number);
  }
  int none = 0;
  if (!stop_signal.compare_exchange_strong(none, number)) {
    say(handler_lines->at_once);
    ::_exit(128 + number);
  }
  say(handler_lines->asked[i]);
  errno = saved_errno;
}

void make_lines(const std::string& step) {
  // A terminal shows ^C, or a progress bar, where the line would begin.
  const char* start = ::isatty(STDERR_FILENO) != 0 ? "\n" : "";
  Lines& all = lines();
  for (size_t i = 0; i < kSignals.size(); ++i) {
    const char* name = kSignals[i].second;
    all.ended[i] = fmt::format("{}{}: stopped before the first {}\n", start, name, step);
    all.asked[i] =
        fmt::format("{}{}: stopping after this {}; once more stops at once\n", start, name, step);
  }
  all.at_once = fmt::format("{}stopped at once\n", start);
  handler_lines = &all;
}

}  // namespace

StopSignals::StopSignals(const std::string& step) {
  MT_CHECK(!installed.exchange(true));
  stop_signal = 0;
  begun = false;
  make_lines(step);
  for (const auto& [number, name] : kSignals) {
    Old old{number};
    MT_CHECK(::sigaction(number, nullptr, &old.action) == 0);
    if (old.action.sa_handler == SIG_IGN) continue;
    struct sigaction action = {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;  // reads and waits inside a step go on
    sigemptyset(&action.sa_mask);
    MT_CHECK(::sigaction(number, &action, nullptr) == 0);
    old_.push_back(old);
  }
}

StopSignals::~StopSignals() {
  for (const Old& old : old_) ::sigaction(old.number, &old.action, nullptr);
  stop_signal = 0;
  installed = false;
}

void StopSignals::begin() { begun = true; }
bool StopSignals::requested() const { return stop_requested(); }
int StopSignals::signal_number() const { return stop_signal; }
const char* StopSignals::name() const { return signal_name(stop_signal); }

bool stop_requested() { return stop_signal != 0; }

void ignore_file_size_signal() { std::signal(SIGXFSZ, SIG_IGN); }

}  // namespace mt
