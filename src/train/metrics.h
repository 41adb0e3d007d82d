// One record a step, under MaxText's names, to the log line, TensorBoard and metrics_file.
// The trainer hands over step n's values once step n + 1 is launched, so that no device waits.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "train/tensorboard.h"

namespace mt::train {

using Scalars = std::map<std::string, double>;  // "learning/loss" -> 12.574

struct StepMetrics {
  int64_t step = 0;
  double seconds = 0;  // wall time of the step
  double loss = 0;
  int64_t total_weights = 0;  // tokens that counted in the loss, over all devices
  double grad_norm = 0;       // after clipping
  double raw_grad_norm = 0;   // before
  double param_norm = 0;
  double learning_rate = 0;
  Scalars extra;  // activ_mean/layer_003, ...: written under these names
};

struct EvalMetrics {
  int64_t step = 0;  // the train step after which it ran
  double total_loss = 0;
  int64_t total_weights = 0;
};

struct MetricsOptions {
  std::string run_name;
  std::string metrics_file;     // "" is none
  std::string tensorboard_dir;  // the folder that holds this run's event file; "" is none
  int64_t log_period = 100;     // TensorBoard is flushed, and named in the log, every so many steps
  double per_device_tflops = 0;  // of one step
  double per_device_tokens = 0;  // of one step
};

class MetricsLogger final {
 public:
  // Opens (and so checks) both files before training starts. Throws kIo naming the unwritable one.
  explicit MetricsLogger(MetricsOptions options);
  ~MetricsLogger();
  MetricsLogger(const MetricsLogger&) = delete;
  MetricsLogger& operator=(const MetricsLogger&) = delete;

  // Logs "number parameters", and writes it and every config key to TensorBoard as text.
  void write_setup(int64_t parameters,
                   const std::vector<std::pair<std::string, std::string>>& config);
  // A file that takes not even its first line is the user's mistake: throws kIo. A later fault is
  // told, and finish() ends with it.
  void write_step(const StepMetrics& metrics);
  void write_eval(const EvalMetrics& metrics);
  void flush();
  // The run is over: flushes, and throws kIo naming a file that could not be written to its end.
  void finish();

  // The scalars of one step as they are written; step 0's file line has just these, step, run_name.
  Scalars scalars(const StepMetrics& metrics) const;

 private:
  void write_file(const Scalars& scalars, int64_t step);
  void write_tensorboard(const Scalars& scalars, int64_t step);

  MetricsOptions options_;
  std::unique_ptr<EventWriter> events_;
  int fd_ = -1;             // metrics_file
  bool written_ = false;    // a line of it
  std::string file_fault_;  // why no more lines are written
};

// A line of metrics_file, without the newline: every scalar as a float, "step", "run_name". JSON
// has no NaN or infinity: such a value is null.
std::string metrics_json(const Scalars& scalars, int64_t step, const std::string& run_name);

}  // namespace mt::train
