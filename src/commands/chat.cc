#include "commands/chat.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/visible.h"
#include "commands/sampling_keys.h"
#include "data/utf8.h"
#include "serve/conversation.h"

namespace mt::commands {
namespace {

constexpr int64_t kUsualTurn = 32;  // tokens; its programs are ready before the first turn

volatile std::sig_atomic_t interrupts = 0;

// SIGINT stops an answer, not the program; a second one while it hasn't stopped ends that too.
class Interrupts final {
 public:
  Interrupts() {
    struct sigaction action = {};
    action.sa_handler = [](int) {
      interrupts = interrupts + 1;
      if (interrupts > 1) ::_exit(130);
    };
    ::sigaction(SIGINT, &action, &old_);  // no SA_RESTART: read() returns
    if (old_.sa_handler == SIG_IGN) ::sigaction(SIGINT, &old_, nullptr);
  }
  ~Interrupts() { ::sigaction(SIGINT, &old_, nullptr); }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

 private:
  struct sigaction old_ = {};
};

class Lines final {
 public:
  // The next line without its end; nothing: no more, or a signal came (then interrupts > 0).
  std::optional<std::string> next() {
    while (true) {
      const size_t end = held_.find('\n');
      if (end != std::string::npos) return take(end);
      if (ended_) return std::nullopt;
      char buffer[4096];
      const ssize_t count = ::read(STDIN_FILENO, buffer, sizeof buffer);
      if (count > 0) {
        held_.append(buffer, static_cast<size_t>(count));
      } else if (count < 0 && errno == EINTR) {
        if (interrupts > 0 || stop_requested()) return std::nullopt;
      } else if (count < 0) {
        throw fail(ErrorKind::kIo, "standard input can't be read");
      } else {
        ended_ = true;
        if (!held_.empty()) held_ += '\n';
      }
    }
  }
  bool ended() const { return ended_ && held_.empty(); }

 private:
  std::string take(size_t end) {
    std::string line = held_.substr(0, end);
    held_.erase(0, end + 1);
    return line;
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
    const serve::Answer a = conversation.answer(
        line, show, [] { return interrupts > 0 || stop_requested() || std::ferror(stdout) != 0; });
    show("\n");
    if (a.forgotten > 0) {
      log_warning("the buffer was full: the conversation began anew, without its first {} turns",
                  a.forgotten);
    }
    if (a.full) log_warning("the buffer (max_target_length) is full: the answer is cut here");
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kLimit) throw;  // a text that is too long
    log_warning("{}", e.what());
  }
}

}  // namespace

int chat(serve::Engine& engine, const data::Tokenizer& tokenizer, const config::Config& config) {
  serve::Conversation conversation(engine, tokenizer, sampling_from(config),
                                   config.text("chat_system_prompt"));
  const bool terminal = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  if (terminal) show("Ctrl-C stops an answer; /reset forgets all turns; /exit or Ctrl-D ends.\n");
  engine.compile(kUsualTurn, sampling_from(config));
  const Interrupts handler;
  Lines lines;
  while (!stop_requested() && std::ferror(stdout) == 0) {
    interrupts = 0;
    if (terminal) show("> ");
    const std::optional<std::string> line = lines.next();
    if (!line && lines.ended()) break;
    if (!line) {
      if (terminal) show("\n");
      continue;
    }
    if (*line == "/exit") return 0;
    if (*line == "/reset") {
      conversation.reset();
    } else if (line->find_first_not_of(" \t\r") != std::string::npos) {
      answer(conversation, *line);
    }
  }
  if (terminal) show("\n");
  return 0;
}

}  // namespace mt::commands
