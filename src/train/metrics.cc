#include "train/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "train/log_lines.h"

namespace mt::train {
namespace {

int open_metrics_file(const std::string& path) {
  // Opened for appending: a resumed run goes on where the first one stopped.
  // O_NONBLOCK only for the opening: a FIFO without a reader is an error, not a wait.
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
  const int fd = ::open(path.c_str(), flags | O_NONBLOCK, 0644);
  if (fd < 0) {
    throw fail(ErrorKind::kIo, "metrics_file={}: can't be written: {}", path, std::strerror(errno));
  }
  ::fcntl(fd, F_SETFL, O_APPEND);
  return fd;
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

std::string metrics_json(const Scalars& scalars, int64_t step, const std::string& run_name) {
  Json line{Json::Object{}};
  for (const auto& [name, value] : scalars) {
    line.set(name, std::isfinite(value) ? Json(value) : Json());
  }
  line.set("step", Json(static_cast<double>(step)));  // MaxText writes the step as a float too
  line.set("run_name", Json(run_name));
  return line.dump();
}

MetricsLogger::MetricsLogger(MetricsOptions options) : options_(std::move(options)) {
  if (!options_.tensorboard_dir.empty()) {
    events_ = std::make_unique<EventWriter>(options_.tensorboard_dir);
  }
  if (!options_.metrics_file.empty()) fd_ = open_metrics_file(options_.metrics_file);
}

MetricsLogger::~MetricsLogger() {
  if (fd_ >= 0) ::close(fd_);
}

void MetricsLogger::write_setup(int64_t parameters,
                                const std::vector<std::pair<std::string, std::string>>& config) {
  log_text(number_parameters_line(parameters));
  if (!events_) return;
  const char* libtpu_arguments = std::getenv("LIBTPU_INIT_ARGS");
  events_->text("num_model_parameters", std::to_string(parameters));
  events_->text("libtpu_init_args", libtpu_arguments == nullptr ? "" : libtpu_arguments);
  for (const auto& [key, value] : config) events_->text(key, value);
  events_->flush();
}

Scalars MetricsLogger::scalars(const StepMetrics& metrics) const {
  Scalars result = metrics.extra;
  result["learning/loss"] = metrics.loss;
  // Gemma 3 has neither experts nor multi-token prediction; readers of the file expect the names.
  result["learning/moe_lb_loss"] = 0;
  result["learning/mtp_loss"] = 0;
  result["learning/total_weights"] = static_cast<double>(metrics.total_weights);
  result["learning/grad_norm"] = metrics.grad_norm;
  result["learning/raw_grad_norm"] = metrics.raw_grad_norm;
  result["learning/param_norm"] = metrics.param_norm;
  result["learning/current_learning_rate"] = metrics.learning_rate;
  result["perf/step_time_seconds"] = metrics.seconds;
  result["perf/per_device_tflops"] = options_.per_device_tflops;
  result["perf/per_device_tflops_per_sec"] = options_.per_device_tflops / metrics.seconds;
  result["perf/per_device_tokens"] = options_.per_device_tokens;
  result["perf/per_device_tokens_per_sec"] = options_.per_device_tokens / metrics.seconds;
  return result;
}

void MetricsLogger::write_step(const StepMetrics& metrics) {
  const Scalars values = scalars(metrics);
  log_text(completed_step_line({.step = metrics.step,
                                .seconds = metrics.seconds,
                                .tflops_per_second = values.at("perf/per_device_tflops_per_sec"),
                                .tokens_per_second = values.at("perf/per_device_tokens_per_sec"),
                                .total_weights = metrics.total_weights,
                                .loss = metrics.loss}));
  if (events_) {
    write_tensorboard(values, metrics.step);
    if (metrics.step % options_.log_period == 0) {
      log_text(tensorboard_hint_line(options_.tensorboard_dir));
      events_->flush();
    }
  }
  write_file(values, metrics.step);
}

void MetricsLogger::write_eval(const EvalMetrics& metrics) {
  const double weights = static_cast<double>(metrics.total_weights);
  const double average = metrics.total_loss / (weights + 1e-8);
  log_text(eval_line(metrics.step, average, metrics.total_weights));
  const Scalars values = {{"eval/total_loss", metrics.total_loss},
                          {"eval/total_weights", weights},
                          {"eval/avg_loss", average},
                          {"eval/moe_lb_loss", 0.0},
                          {"eval/avg_moe_lb_loss", 0.0}};
  if (events_) write_tensorboard(values, metrics.step);
  write_file(values, metrics.step);
}

void MetricsLogger::flush() {
  if (events_) events_->flush();
}

void MetricsLogger::finish() {
  flush();
  if (!file_fault_.empty()) {
    throw fail(ErrorKind::kIo, "metrics_file={}: lines are missing: {}", options_.metrics_file,
               file_fault_);
  }
  if (events_ && !events_->fault().empty()) {
    throw fail(ErrorKind::kIo, "{}: TensorBoard events are missing: {}", events_->path(),
               events_->fault());
  }
}

void MetricsLogger::write_tensorboard(const Scalars& scalars, int64_t step) {
  for (const auto& [name, value] : scalars) events_->scalar(name, value, step);
}

void MetricsLogger::write_file(const Scalars& scalars, int64_t step) {
  if (fd_ < 0 || !file_fault_.empty()) return;
  // Step 0 is a new run. Pipes and terminals can't be truncated, and needn't be.
  const bool ready = step != 0 || ::ftruncate(fd_, 0) == 0 || errno == EINVAL;
  if (ready && write_all(fd_, metrics_json(scalars, step, options_.run_name) + "\n")) {
    written_ = true;
    return;
  }
  file_fault_ = std::strerror(errno);
  if (!written_) {
    throw fail(ErrorKind::kIo, "metrics_file={}: can't be written: {}", options_.metrics_file,
               file_fault_);
  }
  log_warning("metrics_file={}: {}: no more lines are written", options_.metrics_file, file_fault_);
}

}  // namespace mt::train
