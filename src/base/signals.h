// SIGINT, SIGTERM and SIGHUP. Before begin(): one line on stderr, and the end with 128 + the
// signal's number (130, 143, 129). After it: the first asks for a clean stop at the next step and
// says so at once; a second one ends the process.
#pragma once

#include <csignal>
#include <string>
#include <vector>

namespace mt {

// Installs the handlers while it lives and puts the old ones back. One at a time (own bug if not).
// A new one starts with no stop asked for. A signal that the parent set to "ignore" (nohup, a
// shell's background job) stays ignored.
class StopSignals final {
 public:
  // `step`: what the run is made of, "step" or "token".
  explicit StopSignals(const std::string& step);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  void begin();  // the set-up, which can only be ended, is over
  bool requested() const;
  int signal_number() const;  // 0 when no stop was asked for
  const char* name() const;   // "SIGINT", "SIGTERM", "SIGHUP" or ""

 private:
  struct Old {
    int number = 0;
    struct sigaction action = {};
  };
  std::vector<Old> old_;
};

// The same flag, for code that doesn't hold the object (a data loader's wait, say).
bool stop_requested();

// A file that grows past the process's limit then fails to be written (EFBIG), as on a full disk;
// the signal's default is to kill.
void ignore_file_size_signal();

}  // namespace mt
