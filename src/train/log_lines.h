// The run's log lines in MaxText's exact words and number formats (tools parse them). Pure
// functions: the caller prints. "GB" in these lines is 2^30 bytes, as MaxText means it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "train/memory.h"

namespace mt::train {

// What the compiler says about a program, bytes on one device.
struct CompiledMemory {
  int64_t output = 0;
  int64_t temp = 0;
  int64_t argument = 0;
  int64_t alias = 0;  // donated: counted in argument and in output, held once
  int64_t host_temp = 0;

  int64_t total() const { return output + temp + argument - alias; }
};

// "Total memory size: 30.7 GB, Output size: 5.4 GB, Temp size: 25.3 GB, Argument size: ..."
std::string memory_analysis_line(const CompiledMemory& memory);
// The line that follows it: what the figures are (the compiler's estimate), donation counted once.
std::string memory_analysis_note(const CompiledMemory& memory);

// Three lines from "Per train step:"; tflops of one step on one device.
std::string per_train_step_lines(double weight_tflops, double attention_tflops);

std::string number_parameters_line(int64_t parameters);  // "number parameters: 3.880 billion"

struct DeviceMemory {
  std::string device;           // as printed after "on"
  std::optional<int64_t> used;  // bytes; empty when the plugin has no figures
  std::optional<int64_t> limit;
};

// "\nMemstats: After params initialized:" and a line per device.
std::string memstats_lines(std::string_view label, std::span<const DeviceMemory> devices);
// "\nRAMstats: After load_params:" and one line.
std::string ramstats_lines(std::string_view label, const RamStats& ram);

struct CompletedStep {
  int64_t step = 0;
  double seconds = 0;
  double tflops_per_second = 0;  // per device
  double tokens_per_second = 0;  // per device
  int64_t total_weights = 0;
  double loss = 0;
};
std::string completed_step_line(const CompletedStep& step);

std::string eval_step_line(int64_t step);  // "Completed eval step 3"
std::string eval_line(int64_t step, double loss, int64_t total_weights);
std::string tensorboard_hint_line(std::string_view tensorboard_dir);

// "Num_devices: 4, shape (1, 1, 4, 1)"; the mesh's sizes, outermost axis first.
std::string num_devices_line(int64_t devices, std::span<const int64_t> mesh_shape);

// "System Information: PJRT Plugin: ...", "... PJRT API Version: 0.115", "... Backend: cpu ...".
std::string system_information_lines(std::string_view plugin, std::string_view api_version,
                                     std::string_view backend);

// Python's formatting, on which the lines depend.
std::string python_fixed(double value, int digits);  // f"{value:.3f}"
std::string python_round2(double value);             // str(round(value, 2)): "22.7", "32.0"
std::string python_percent(double value);            // f"{value:%}": "5.943179%"

}  // namespace mt::train
