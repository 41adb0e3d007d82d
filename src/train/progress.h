// The progress bar: one line at the bottom of a terminal, redrawn in place. Log lines appear above
// it. Nothing is drawn where stderr is no terminal, or TERM is "dumb".
#pragma once

#include <unistd.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "base/log.h"

namespace mt::train {

struct ProgressState {
  int64_t done = 0;             // steps completed, counted from step 0
  int64_t total = 0;            // the run's last step + 1
  double seconds_per_step = 0;  // <= 0: not known yet
  double loss = 0;
};

// At most `width` columns: "step 12/100 [===>      ] 12%  loss 12.574  1:48 left  1.23 s/step".
// Where the terminal is narrow the bar goes first, then the parts from the right.
std::string render_progress(const ProgressState& state, int width, bool color);

class ProgressBar final {
 public:
  // `fd` is the terminal. `first_step` > 0 after a resume.
  ProgressBar(int64_t first_step, int64_t total_steps, int fd = STDERR_FILENO);
  ~ProgressBar();  // clears the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // After each step. The rate shown is the median of the last 16 steps': compiling doesn't skew it.
  void update(int64_t done, double seconds, double loss);
  bool visible() const { return visible_; }

 private:
  void draw();  // both under the log's lock
  void clear();

  int fd_;
  bool visible_ = false;
  bool color_ = false;
  bool drawn_ = false;
  ProgressState state_;
  std::deque<double> recent_;
  std::unique_ptr<LogHook> hook_;
};

}  // namespace mt::train
