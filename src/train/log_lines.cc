#include "train/log_lines.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdlib>

namespace mt::train {
namespace {

double gib(int64_t bytes) { return static_cast<double>(bytes) / 1073741824.0; }

// The rounded figure is what MaxText goes on computing with (its percentages are of these).
double rounded_gib(int64_t bytes) {
  return std::strtod(fmt::format("{:.2f}", gib(bytes)).c_str(), nullptr);
}

}  // namespace

std::string python_fixed(double value, int digits) {
  if (std::isnan(value)) return "nan";  // fmt would print the sign of a NaN
  return fmt::format("{:.{}f}", value, digits);
}

std::string python_round2(double value) {
  if (!std::isfinite(value)) return python_fixed(value, 2);
  const double rounded = std::strtod(fmt::format("{:.2f}", value).c_str(), nullptr);
  std::string text = fmt::format("{}", rounded);  // the shortest text that reads back
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string python_percent(double value) { return python_fixed(value * 100.0, 6) + "%"; }

std::string memory_analysis_line(const CompiledMemory& memory) {
  return fmt::format(
      "Total memory size: {:.1f} GB, Output size: {:.1f} GB, Temp size: {:.1f} GB, "
      "Argument size: {:.1f} GB, Host temp size: {:.1f} GB.",
      gib(memory.total()), gib(memory.output), gib(memory.temp), gib(memory.argument),
      gib(memory.host_temp));
}

std::string memory_analysis_note(const CompiledMemory& memory) {
  return fmt::format(
      "The sizes are the compiler's estimate for one device; {:.1f} GB are donated (argument and "
      "output at once) and counted once in the total.",
      gib(memory.alias));
}

std::string per_train_step_lines(double weight_tflops, double attention_tflops) {
  const double total = weight_tflops + attention_tflops;
  return fmt::format(
      "Per train step:\n Total TFLOPs: {} \n split as {}% learnable weight flops and {}% attention "
      "flops",
      python_fixed(total, 2), python_fixed(100 * weight_tflops / total, 2),
      python_fixed(100 * attention_tflops / total, 2));
}

std::string number_parameters_line(int64_t parameters) {
  return fmt::format("number parameters: {:.3f} billion", static_cast<double>(parameters) / 1e9);
}

std::string memstats_lines(std::string_view label, std::span<const DeviceMemory> devices) {
  std::string text = fmt::format("\nMemstats: {}:", label);
  for (const DeviceMemory& device : devices) {
    if (!device.used || device.limit.value_or(0) <= 0) {
      return text + fmt::format("\n\tMemstats unavailable, error: {} has no memory statistics",
                                device.device);
    }
    const double used = rounded_gib(*device.used);
    const double limit = rounded_gib(*device.limit);
    text += fmt::format("\n\tUsing (GB) {} / {} ({}) on {}", python_round2(used),
                        python_round2(limit), python_percent(used / limit), device.device);
  }
  return text;
}

std::string ramstats_lines(std::string_view label, const RamStats& ram) {
  const double used = rounded_gib(ram.used);
  const double total = rounded_gib(ram.total);
  return fmt::format("\nRAMstats: {}:\n\tUsing (GB) {} / {} ({}) -->  Available:{}", label,
                     python_round2(used), python_round2(total), python_percent(used / total),
                     python_round2(gib(ram.available)));
}

std::string completed_step_line(const CompletedStep& step) {
  return fmt::format(
      "completed step: {}, seconds: {}, TFLOP/s/device: {}, Tokens/s/device: {}, "
      "total_weights: {}, loss: {}",
      step.step, python_fixed(step.seconds, 3), python_fixed(step.tflops_per_second, 3),
      python_fixed(step.tokens_per_second, 3), step.total_weights, python_fixed(step.loss, 3));
}

std::string eval_step_line(int64_t step) { return fmt::format("Completed eval step {}", step); }

std::string eval_line(int64_t step, double loss, int64_t total_weights) {
  return fmt::format("eval metrics after step: {}, loss={}, total_weights={}", step,
                     python_fixed(loss, 3), total_weights);
}

std::string tensorboard_hint_line(std::string_view tensorboard_dir) {
  return fmt::format("To see full metrics 'tensorboard --logdir={}'", tensorboard_dir);
}

std::string num_devices_line(int64_t devices, std::span<const int64_t> mesh_shape) {
  std::string shape;
  for (const int64_t size : mesh_shape) {
    shape += fmt::format("{}{}", shape.empty() ? "" : ", ", size);
  }
  if (mesh_shape.size() == 1) shape += ",";  // Python's tuple of one
  return fmt::format("Num_devices: {}, shape ({})", devices, shape);
}

std::string system_information_lines(std::string_view plugin, std::string_view api_version,
                                     std::string_view backend) {
  return fmt::format(
      "System Information: PJRT Plugin: {}\nSystem Information: PJRT API Version: {}\n"
      "System Information: Backend: {}",
      plugin, api_version, backend);
}

}  // namespace mt::train
