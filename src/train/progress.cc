#include "train/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "train/log_lines.h"

namespace mt::train {
namespace {

constexpr int kWidestBar = 30;
constexpr int kNarrowestBar = 8;
constexpr size_t kRateSteps = 16;

// "7 s", "1:48", "2:05:09", "3 d 4 h"
std::string duration(double seconds) {
  if (!(seconds < 1e9)) return "?";
  const auto total = static_cast<int64_t>(std::llround(seconds));
  if (total < 60) return fmt::format("{} s", total);
  if (total < 3600) return fmt::format("{}:{:02d}", total / 60, total % 60);
  if (total < 86400) {
    return fmt::format("{}:{:02d}:{:02d}", total / 3600, total / 60 % 60, total % 60);
  }
  return fmt::format("{} d {} h", total / 86400, total / 3600 % 24);
}

std::string rate(double seconds_per_step) {
  return seconds_per_step >= 0.1 ? fmt::format("{:.2f} s/step", seconds_per_step)
                                 : fmt::format("{:.1f} steps/s", 1 / seconds_per_step);
}

std::string bar(double fraction, int width) {
  const int inner = width - 2;
  const int filled = std::clamp(static_cast<int>(fraction * inner), 0, inner);
  std::string text(static_cast<size_t>(filled), '=');
  if (filled < inner) text += '>';
  text.resize(static_cast<size_t>(inner), ' ');
  return "[" + text + "]";
}

// What stands right of the bar, the least important last.
std::vector<std::string> details(const ProgressState& state, double fraction) {
  std::vector<std::string> parts;
  parts.push_back(fmt::format(" {:.0f}%", std::floor(fraction * 100)));
  if (state.done > 0) parts.push_back("  loss " + python_fixed(state.loss, 3));
  if (state.seconds_per_step > 0) {
    const double left = static_cast<double>(state.total - state.done) * state.seconds_per_step;
    parts.push_back("  " + duration(left) + " left");
    parts.push_back("  " + rate(state.seconds_per_step));
  }
  return parts;
}

int terminal_width(int fd) {
  winsize size = {};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

bool is_terminal(int fd) {
  const char* term = std::getenv("TERM");
  return ::isatty(fd) == 1 && !(term != nullptr && std::string_view(term) == "dumb");
}

// https://no-color.org: set and not empty
bool wants_color() {
  const char* no_color = std::getenv("NO_COLOR");
  return no_color == nullptr || no_color[0] == '\0';
}

void put(int fd, std::string_view text) {
  // A terminal that went away loses the bar, not the run.
  [[maybe_unused]] const ssize_t written = ::write(fd, text.data(), text.size());
}

double median(const std::deque<double>& values) {
  std::vector<double> sorted(values.begin(), values.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

}  // namespace

std::string render_progress(const ProgressState& state, int width, bool color) {
  const double fraction =
      state.total > 0 ? static_cast<double>(state.done) / static_cast<double>(state.total) : 1.0;
  const std::string head = fmt::format("step {}/{} ", state.done, state.total);
  int room = width - static_cast<int>(head.size());
  if (room < 0) return head.substr(0, static_cast<size_t>(std::max(width, 0)));
  std::string tail;
  for (const std::string& part : details(state, fraction)) {
    if (static_cast<int>(tail.size() + part.size()) > room) break;
    tail += part;
  }
  room -= static_cast<int>(tail.size());
  if (room < kNarrowestBar) return head + tail.substr(tail.empty() ? 0 : 1);
  const std::string drawn = bar(fraction, std::min(room, kWidestBar));
  return head + (color ? "\x1b[32m" + drawn + "\x1b[0m" : drawn) + tail;
}

ProgressBar::ProgressBar(int64_t first_step, int64_t total_steps, int fd)
    : fd_(fd), visible_(is_terminal(fd)), color_(wants_color()) {
  state_.done = first_step;
  state_.total = total_steps;
  if (!visible_) return;
  hook_ = std::make_unique<LogHook>([this] { clear(); }, [this] { draw(); });
}

ProgressBar::~ProgressBar() {
  if (!visible_) return;
  hook_.reset();
  with_log_lock([this] { clear(); });
}

void ProgressBar::update(int64_t done, double seconds, double loss) {
  if (!visible_) return;
  with_log_lock([&] {
    recent_.push_back(seconds);
    if (recent_.size() > kRateSteps) recent_.pop_front();
    state_.done = done;
    state_.loss = loss;
    state_.seconds_per_step = median(recent_);
    draw();
  });
}

void ProgressBar::draw() {
  // The last column stays empty: writing it would wrap the line on some terminals.
  put(fd_, "\r\x1b[K" + render_progress(state_, terminal_width(fd_) - 1, color_));
  drawn_ = true;
}

void ProgressBar::clear() {
  if (drawn_) put(fd_, "\r\x1b[K");
  drawn_ = false;
}

}  // namespace mt::train
