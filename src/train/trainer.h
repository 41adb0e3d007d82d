// The training run: set-up, the loop, and its log.
#pragma once

#include "config/config.h"

namespace mt::train {

enum class RunEnd : uint8_t { kFinished, kDataEnded, kStopped };

struct RunResult {
  RunEnd end = RunEnd::kFinished;
  int64_t steps = 0;  // completed
  double last_loss = 0;
  int signal_number = 0;  // of kStopped
};

// Trains by the configuration. Everything that can be wrong with it is found before memory is
// taken.
RunResult train(const config::Config& config);

}  // namespace mt::train
