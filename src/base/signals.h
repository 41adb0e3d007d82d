// SIGINT and SIGTERM: the first asks for a clean stop at the next step boundary and says so on
// stderr; a second one ends the process at once with 128 + its number (130 for SIGINT).
#pragma once

#include <csignal>

namespace mt {

// Installs the handlers while it lives and puts the old ones back. One at a time (own bug if not).
// A new one starts with no stop asked for. A signal that the parent set to "ignore" (nohup, a
// shell's background job) stays ignored.
class StopSignals final {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  bool requested() const;
  int signal_number() const;  // 0 when no stop was asked for
  const char* name() const;   // "SIGINT", "SIGTERM" or ""

 private:
  struct sigaction old_int_ = {};
  struct sigaction old_term_ = {};
};

// The same flag, for code that doesn't hold the object (a data loader's wait, say).
bool stop_requested();

}  // namespace mt
