#include "commands/chat.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/visible.h"
#include "commands/sampling_keys.h"
#include "data/utf8.h"
#include "serve/conversation.h"

namespace mt::commands {
namespace {

// What the handler touches.
volatile std::sig_atomic_t answering = 0;
volatile std::sig_atomic_t interrupts = 0;  // of this answer
volatile std::sig_atomic_t ending = 0;      // the signal that ends the program
int wake[2] = {-1, -1};                     // a pipe: wakes who waits for a line

void on_signal(int number) {
  const int saved_errno = errno;
  if (number == SIGINT && answering != 0 && interrupts == 0) {
    interrupts = 1;
  } else {
    if (ending != 0 || interrupts != 0) ::_exit(128 + number);
    ending = number;
  }
  [[maybe_unused]] const ssize_t written = ::write(wake[1], "", 1);
  errno = saved_errno;
}

// SIGINT stops an answer; at the prompt it ends the program, as SIGTERM and SIGHUP do anywhere. A
// second one while an answer hasn't stopped ends at once.
class Interrupts final {
 public:
  Interrupts() {
    MT_CHECK(::pipe2(wake, O_CLOEXEC | O_NONBLOCK) == 0);
    for (size_t i = 0; i < kSignals.size(); ++i) {
      struct sigaction action = {};
      action.sa_handler = on_signal;
      action.sa_flags = SA_RESTART;
      ::sigaction(kSignals[i], &action, &old_[i]);
      if (old_[i].sa_handler == SIG_IGN) ::sigaction(kSignals[i], &old_[i], nullptr);
    }
  }
  ~Interrupts() {
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &old_[i], nullptr);
    for (const int end : wake) ::close(end);
  }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

 private:
  static constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> old_ = {};
};

class Lines final {
 public:
  // The next line without its end; nothing: no more, or a signal ends the program.
  std::optional<std::string> next() {
    while (true) {
      const size_t end = held_.find('\n');
      if (end != std::string::npos) return take(end);
      if (ended_ || !wait()) return std::nullopt;
      char buffer[4096];
      const ssize_t count = ::read(STDIN_FILENO, buffer, sizeof buffer);
      if (count > 0) {
        held_.append(buffer, static_cast<size_t>(count));
      } else if (count < 0) {
        throw fail(ErrorKind::kIo, "standard input can't be read");
      } else {
        ended_ = true;
        if (!held_.empty()) held_ += '\n';
      }
    }
  }

 private:
  std::string take(size_t end) {
    std::string line = held_.substr(0, end);
    held_.erase(0, end + 1);
    return line;
  }
  // Until there is something to read; false: a signal ends the program.
  static bool wait() {
    while (ending == 0) {
      std::array<pollfd, 2> fds{{{STDIN_FILENO, POLLIN, 0}, {wake[0], POLLIN, 0}}};
      if (::poll(fds.data(), fds.size(), -1) < 0) continue;
      char byte = 0;
      while (::read(wake[0], &byte, 1) > 0) continue;
      if (fds[0].revents != 0) return ending == 0;
    }
    return false;
  }

  std::string held_;
  bool ended_ = false;
};

void show(const std::string& text) {
  fmt::print("{}", visible(text));
  std::fflush(stdout);
}

void answer(serve::Conversation& conversation, const std::string& line) {
  if (const auto at = data::first_invalid_utf8(line)) {
    log_warning("the line is not valid UTF-8 at byte {}", *at);
    return;
  }
  try {
    interrupts = 0;
    answering = 1;
    const serve::Answer a = conversation.answer(
        line, show, [] { return interrupts != 0 || ending != 0 || std::ferror(stdout) != 0; });
    answering = 0;
    show("\n");
    if (a.forgotten > 0) {
      log_warning("the buffer was full: the conversation began anew, without its first {}",
                  a.forgotten == 1 ? "turn" : fmt::format("{} turns", a.forgotten));
    }
    if (a.full) log_warning("the buffer (max_target_length) is full: the answer is cut here");
  } catch (const Error& e) {
    answering = 0;
    if (e.kind() != ErrorKind::kLimit) throw;  // a text that is too long
    log_warning("{}", e.what());
  }
}

}  // namespace

int chat(serve::Engine& engine, const data::Tokenizer& tokenizer, const config::Config& config) {
  serve::Conversation conversation(engine, tokenizer, sampling_from(config),
                                   config.text("chat_system_prompt"));
  const bool terminal = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  const Interrupts handler;
  if (terminal) {
    show("Ctrl-C stops an answer; /reset forgets all turns; /exit, Ctrl-D or Ctrl-C ends.\n");
  }
  Lines lines;
  while (ending == 0 && std::ferror(stdout) == 0) {
    if (terminal) show("> ");
    const std::optional<std::string> line = lines.next();
    if (line == "/exit") return 0;
    if (!line) {
      if (terminal) show("\n");
      break;
    }
    if (*line == "/reset") {
      conversation.reset();
    } else if (line->find_first_not_of(" \t\r") != std::string::npos) {
      answer(conversation, *line);
    }
  }
  return ending == 0 ? 0 : 128 + ending;
}

}  // namespace mt::commands
