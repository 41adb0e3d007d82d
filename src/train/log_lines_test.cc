#include "train/log_lines.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace mt::train {
namespace {

constexpr double kGiB = 1073741824.0;
int64_t gib(double value) { return static_cast<int64_t>(value * kGiB); }

// The expected lines are those of the run that MaxText's change #2439 was accepted on.
TEST(LogLines, MemoryAnalysis) {
  const CompiledMemory memory = {
      .output = gib(5.4), .temp = gib(25.3), .argument = gib(5.4), .alias = gib(5.4)};
  EXPECT_EQ(memory_analysis_line(memory),
            "Total memory size: 30.7 GB, Output size: 5.4 GB, Temp size: 25.3 GB, Argument size: "
            "5.4 GB, Host temp size: 0.0 GB.");
}

// Figures of MaxText 0.2.5 compiled for four v5p chips: the donated state is counted once.
TEST(LogLines, MemoryAnalysisCountsDonatedBytesOnce) {
  CompiledMemory memory = {
      .output = 5823038624, .temp = 25415909376, .argument = 5823358976, .alias = 5823031296};
  EXPECT_EQ(memory.total(), 31239275680);
  EXPECT_EQ(memory_analysis_line(memory),
            "Total memory size: 29.1 GB, Output size: 5.4 GB, Temp size: 23.7 GB, Argument size: "
            "5.4 GB, Host temp size: 0.0 GB.");
  EXPECT_EQ(memory_analysis_note(memory),
            "The sizes are the compiler's estimate for one device; 5.4 GB are donated (argument "
            "and output at once) and counted once in the total.");
  memory.alias = 0;
  EXPECT_EQ(memory.total(), 31239275680 + 5823031296);
}

TEST(LogLines, PerTrainStep) {
  EXPECT_EQ(per_train_step_lines(391.4949 * 0.9742, 391.4949 * 0.0258),
            "Per train step:\n Total TFLOPs: 391.49 \n split as 97.42% learnable weight flops and "
            "2.58% attention flops");
}

TEST(LogLines, NumberParameters) {
  EXPECT_EQ(number_parameters_line(3880099328), "number parameters: 3.880 billion");
  EXPECT_EQ(number_parameters_line(268098176), "number parameters: 0.268 billion");
}

TEST(LogLines, Memstats) {
  const std::vector<DeviceMemory> devices = {
      {"TpuDevice(id=0)", gib(5.69), gib(95.74)},
      {"TpuDevice(id=1)", gib(32), gib(95.74)},
  };
  EXPECT_EQ(memstats_lines("After params initialized", devices),
            "\nMemstats: After params initialized:\n"
            "\tUsing (GB) 5.69 / 95.74 (5.943179%) on TpuDevice(id=0)\n"
            "\tUsing (GB) 32.0 / 95.74 (33.423856%) on TpuDevice(id=1)");
}

TEST(LogLines, MemstatsOfAPluginWithoutFigures) {
  const std::vector<DeviceMemory> devices = {{"TFRT_CPU_0", {}, {}}, {"TFRT_CPU_1", {}, {}}};
  EXPECT_EQ(memstats_lines("After load_params", devices),
            "\nMemstats: After load_params:\n"
            "\tMemstats unavailable, error: TFRT_CPU_0 has no memory statistics");
}

TEST(LogLines, Ramstats) {
  EXPECT_EQ(ramstats_lines("After load_params",
                           {.total = gib(440.83), .available = gib(405.7), .used = gib(32.51)}),
            "\nRAMstats: After load_params:\n"
            "\tUsing (GB) 32.51 / 440.83 (7.374725%) -->  Available:405.7");
  EXPECT_EQ(ramstats_lines("After load_params",
                           {.total = gib(440.83), .available = gib(415.51), .used = gib(22.7)}),
            "\nRAMstats: After load_params:\n"
            "\tUsing (GB) 22.7 / 440.83 (5.149377%) -->  Available:415.51");
}

TEST(LogLines, CompletedStep) {
  CompletedStep step = {.step = 8,
                        .seconds = 16384 / 10239.808,
                        .tflops_per_second = 244.68,
                        .tokens_per_second = 10239.808,
                        .total_weights = 65536,
                        .loss = 12.574};
  EXPECT_EQ(completed_step_line(step),
            "completed step: 8, seconds: 1.600, TFLOP/s/device: 244.680, Tokens/s/device: "
            "10239.808, total_weights: 65536, loss: 12.574");
  step.loss = -std::nan("");
  EXPECT_TRUE(completed_step_line(step).ends_with(", loss: nan"));
  step.loss = -INFINITY;
  EXPECT_TRUE(completed_step_line(step).ends_with(", loss: -inf"));
}

TEST(LogLines, Eval) {
  EXPECT_EQ(eval_step_line(3), "Completed eval step 3");
  EXPECT_EQ(eval_line(9, 2.34567, 4096),
            "eval metrics after step: 9, loss=2.346, total_weights=4096");
}

TEST(LogLines, Start) {
  EXPECT_EQ(num_devices_line(4, std::vector<int64_t>{1, 1, 4, 1}),
            "Num_devices: 4, shape (1, 1, 4, 1)");
  EXPECT_EQ(num_devices_line(2, std::vector<int64_t>{2}), "Num_devices: 2, shape (2,)");
  EXPECT_EQ(num_devices_line(1, {}), "Num_devices: 1, shape ()");
  EXPECT_EQ(tensorboard_hint_line("/runs/a/tensorboard/"),
            "To see full metrics 'tensorboard --logdir=/runs/a/tensorboard/'");
  EXPECT_EQ(system_information_lines("cpu.so", "0.115", "cpu"),
            "System Information: PJRT Plugin: cpu.so\n"
            "System Information: PJRT API Version: 0.115\n"
            "System Information: Backend: cpu");
}

TEST(PythonNumbers, Round2) {
  EXPECT_EQ(python_round2(22.7), "22.7");
  EXPECT_EQ(python_round2(32), "32.0");
  EXPECT_EQ(python_round2(0), "0.0");
  EXPECT_EQ(python_round2(0.004), "0.0");
  EXPECT_EQ(python_round2(2.675), "2.67");  // the double lies below the tie, as Python sees it
  EXPECT_EQ(python_round2(0.125), "0.12");  // an exact tie goes to the even digit
  EXPECT_EQ(python_round2(440.8349), "440.83");
  EXPECT_EQ(python_round2(std::nan("")), "nan");
}

TEST(PythonNumbers, Percent) {
  EXPECT_EQ(python_percent(5.69 / 95.74), "5.943179%");
  EXPECT_EQ(python_percent(0), "0.000000%");
  EXPECT_EQ(python_percent(1), "100.000000%");
}

}  // namespace
}  // namespace mt::train
