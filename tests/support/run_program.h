// Runs the real maxtext program as a user does: words in, exit code and two streams out.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace mt::testing {

struct ProgramEnd {
  int code = -1;          // of exit
  int signal_number = 0;  // if a signal ended it
  std::string out, err;
};

// One run; its streams are files in `folder`.
class ProgramRun {
 public:
  ProgramRun(const std::string& folder, const std::vector<std::string>& words,
             const std::map<std::string, std::string>& environment = {})
      : out_(folder + "/stdout"), err_(folder + "/stderr") {
    std::vector<std::string> all{MT_PROGRAM};
    all.insert(all.end(), words.begin(), words.end());
    std::map<std::string, std::string> values = environment;
    values.insert({{"MAXTEXT_CONFIGS", MT_SOURCE_DIR "/configs"},
                   {"MAXTEXT_DEPS", MT_DEPS},
                   {"HOME", folder},
                   {"PATH", "/usr/bin:/bin"}});
    std::vector<std::string> variables;
    for (const auto& [key, value] : values) variables.push_back(key + "=" + value);
    const auto pointers = [](std::vector<std::string>& list) {
      std::vector<char*> raw;
      for (std::string& s : list) raw.push_back(s.data());
      raw.push_back(nullptr);
      return raw;
    };
    std::vector<char*> argv = pointers(all), envp = pointers(variables);
    const int out = ::open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int err = ::open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    MT_CHECK(out >= 0 && err >= 0);
    pid_ = ::fork();
    MT_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      ::dup2(out, STDOUT_FILENO);
      ::dup2(err, STDERR_FILENO);
      ::execve(argv[0], argv.data(), envp.data());
      ::_exit(127);
    }
    ::close(out);
    ::close(err);
  }
  ~ProgramRun() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  ProgramRun(const ProgramRun&) = delete;
  ProgramRun& operator=(const ProgramRun&) = delete;

  // Waits until stdout holds `text`; false if the program ends before.
  bool wait_for(const std::string& text) {
    while (read_file(out_).find(text) == std::string::npos) {
      if (ended()) return read_file(out_).find(text) != std::string::npos;
      ::usleep(20'000);
    }
    return true;
  }
  void send(int signal_number) const { ::kill(pid_, signal_number); }
  ProgramEnd wait() {
    if (!ended_) {
      ::waitpid(pid_, &status_, 0);
      ended_ = true;
    }
    pid_ = -1;
    ProgramEnd end;
    if (WIFEXITED(status_)) end.code = WEXITSTATUS(status_);
    if (WIFSIGNALED(status_)) end.signal_number = WTERMSIG(status_);
    end.out = read_file(out_);
    end.err = read_file(err_);
    return end;
  }

 private:
  bool ended() {
    if (!ended_ && ::waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
    return ended_;
  }
  std::string out_, err_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

inline ProgramEnd run_program(const std::string& folder, const std::vector<std::string>& words,
                              const std::map<std::string, std::string>& environment = {}) {
  return ProgramRun(folder, words, environment).wait();
}

// Exit code of the program with `redirections` of a shell behind its words: "train steps=x 2>&-".
// -1 if a signal ended it.
inline int run_redirected(const std::string& words_and_redirections) {
  const std::string line = "MAXTEXT_CONFIGS=" MT_SOURCE_DIR "/configs MAXTEXT_DEPS=" MT_DEPS
                           " exec " MT_PROGRAM " " +
                           words_and_redirections;
  const int status = std::system(line.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace mt::testing
