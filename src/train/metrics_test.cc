#include "train/metrics.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/signals.h"

namespace mt::train {
namespace {

// The reference run's step 8.
StepMetrics step8() {
  return {.step = 8,
          .seconds = 16384 / 10239.808,
          .loss = 12.574,
          .total_weights = 65536,
          .grad_norm = 1,
          .raw_grad_norm = 4.5,
          .param_norm = 2000,
          .learning_rate = 6.158e-6,
          .extra = {{"activ_mean/layer_003", 0.25}}};
}

class MetricsTest : public testing::Test {
 protected:
  MetricsTest() : folder_(testing::TempDir() + "mt_metrics." + std::to_string(::getpid())) {
    make_directories(folder_);
  }
  ~MetricsTest() override { std::filesystem::remove_all(folder_); }

  std::string file() const { return folder_ + "/metrics.jsonl"; }
  MetricsOptions options() const {
    return {.run_name = "gemma3-4b-after",
            .metrics_file = file(),
            .per_device_tflops = 391.4949,
            .per_device_tokens = 16384};
  }
  std::string event_bytes() const {
    std::string bytes;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/tb")) {
      bytes += read_file(entry.path().string());
    }
    return bytes;
  }

  std::string folder_;
};

template <typename Call>
std::string printed(Call call) {
  testing::internal::CaptureStdout();
  call();
  return testing::internal::GetCapturedStdout();
}

TEST_F(MetricsTest, LineAndFileOfTheReferenceStep) {
  MetricsLogger logger(options());
  EXPECT_EQ(printed([&] { logger.write_step(step8()); }),
            "completed step: 8, seconds: 1.600, TFLOP/s/device: 244.680, Tokens/s/device: "
            "10239.808, total_weights: 65536, loss: 12.574\n");
  const Json line = Json::parse(read_file(file()));
  EXPECT_EQ(line.as_object().size(), 16u);
  EXPECT_EQ(line.at("learning/loss").as_double(), 12.574);
  EXPECT_EQ(line.at("learning/moe_lb_loss").as_double(), 0);
  EXPECT_EQ(line.at("learning/mtp_loss").as_double(), 0);
  EXPECT_EQ(line.at("learning/total_weights").as_double(), 65536);
  EXPECT_EQ(line.at("learning/grad_norm").as_double(), 1);
  EXPECT_EQ(line.at("learning/raw_grad_norm").as_double(), 4.5);
  EXPECT_EQ(line.at("learning/param_norm").as_double(), 2000);
  EXPECT_EQ(line.at("learning/current_learning_rate").as_double(), 6.158e-6);
  EXPECT_EQ(line.at("perf/step_time_seconds").as_double(), 16384 / 10239.808);
  EXPECT_EQ(line.at("perf/per_device_tflops").as_double(), 391.4949);
  EXPECT_NEAR(line.at("perf/per_device_tflops_per_sec").as_double(), 244.680, 5e-4);
  EXPECT_EQ(line.at("perf/per_device_tokens").as_double(), 16384);
  EXPECT_NEAR(line.at("perf/per_device_tokens_per_sec").as_double(), 10239.808, 1e-9);
  EXPECT_EQ(line.at("activ_mean/layer_003").as_double(), 0.25);
  EXPECT_EQ(line.at("step").as_double(), 8);
  EXPECT_EQ(line.at("run_name").as_string(), "gemma3-4b-after");
}

TEST_F(MetricsTest, JsonLineIsExactAndHasNoNan) {
  EXPECT_EQ(metrics_json({{"learning/loss", std::nan("")},
                          {"learning/grad_norm", std::numeric_limits<double>::infinity()},
                          {"learning/total_weights", 512}},
                         3, "a \"b\""),
            "{\"learning/grad_norm\":null,\"learning/loss\":null,\"learning/total_weights\":512.0,"
            "\"step\":3.0,\"run_name\":\"a \\\"b\\\"\"}");
}

TEST_F(MetricsTest, FileStartsAnewAtStepZeroAndGoesOnOtherwise) {
  write_file(file(), "an older run\n");
  StepMetrics step = step8();
  const auto lines = [&] {
    const std::string text = read_file(file());
    return std::count(text.begin(), text.end(), '\n');
  };
  {
    MetricsLogger logger(options());
    EXPECT_EQ(read_file(file()), "an older run\n");  // nothing lost before the first step is done
    for (step.step = 0; step.step < 3; ++step.step) printed([&] { logger.write_step(step); });
    EXPECT_EQ(lines(), 3);
    EXPECT_EQ(read_file(file()).find("older"), std::string::npos);
  }
  MetricsLogger resumed(options());
  printed([&] { resumed.write_step(step); });
  EXPECT_EQ(lines(), 4);
}

TEST_F(MetricsTest, UnwritableFileIsAnErrorBeforeTraining) {
  const auto error_of = [&](const std::string& path) -> std::string {
    MetricsOptions bad = options();
    bad.metrics_file = path;
    try {
      const MetricsLogger logger(bad);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kIo);
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of(folder_ + "/no/such.jsonl"), "metrics_file=" + folder_ +
                                                      "/no/such.jsonl: can't be written: No such "
                                                      "file or directory");
  EXPECT_EQ(error_of(folder_), "metrics_file=" + folder_ + ": can't be written: Is a directory");
}

TEST_F(MetricsTest, AFileThatTakesNoLineAtAllEndsTheRun) {
  MetricsOptions full = options();
  full.metrics_file = "/dev/full";
  MetricsLogger logger(full);
  std::string fault;
  printed([&] {
    try {
      logger.write_step(step8());
    } catch (const Error& error) {
      fault = error.what();
    }
  });
  EXPECT_EQ(fault, "metrics_file=/dev/full: can't be written: No space left on device");
}

TEST_F(MetricsTest, ADiskThatFillsUpWarnsOnceAndTrainingGoesOn) {
  const std::string path = options().metrics_file;
  MetricsLogger logger(options());
  printed([&] { logger.write_step(step8()); });
  ignore_file_size_signal();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit now = before;
  now.rlim_cur = read_file(path).size();
  testing::internal::CaptureStderr();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &now), 0);
  const std::string out = printed([&] {
    for (int i = 0; i < 2; ++i) logger.write_step(step8());
  });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: metrics_file=" + path + ": File too large: no more lines are written\n");
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 2);
  try {
    logger.finish();
    FAIL() << "the run ends well";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_EQ(std::string(error.what()),
              "metrics_file=" + path + ": lines are missing: File too large");
  }
}

TEST_F(MetricsTest, TensorBoardGetsEveryScalarAndIsFlushedEveryPeriod) {
  MetricsOptions with_events = options();
  with_events.tensorboard_dir = folder_ + "/tb";
  with_events.log_period = 4;
  MetricsLogger logger(with_events);
  StepMetrics step = step8();
  const std::string hint = "To see full metrics 'tensorboard --logdir=" + folder_ + "/tb'\n";
  EXPECT_TRUE(printed([&] { logger.write_step(step); }).ends_with("loss: 12.574\n" + hint));
  const std::string flushed = event_bytes();
  for (const auto& [name, value] : logger.scalars(step)) {
    const std::string event = scalar_event(0, 8, name, static_cast<float>(value));
    EXPECT_NE(flushed.find(event.substr(9)), std::string::npos) << name;
  }
  step.step = 9;
  EXPECT_EQ(printed([&] { logger.write_step(step); }).find("tensorboard"), std::string::npos);
  EXPECT_EQ(event_bytes().size(), flushed.size());
  logger.flush();
  EXPECT_GT(event_bytes().size(), flushed.size());
}

TEST_F(MetricsTest, SetupTextAndEval) {
  MetricsOptions with_events = options();
  with_events.tensorboard_dir = folder_ + "/tb";
  MetricsLogger logger(with_events);
  EXPECT_EQ(printed([&] {
              logger.write_setup(3880099328, {{"model_name", "gemma3-4b"}});
            }),
            "number parameters: 3.880 billion\n");
  EXPECT_EQ(
      printed([&] { logger.write_eval({.step = 9, .total_loss = 300, .total_weights = 128}); }),
      "eval metrics after step: 9, loss=2.344, total_weights=128\n");
  logger.flush();
  const std::string bytes = event_bytes();
  for (const std::string& event :
       {text_event(0, 0, "num_model_parameters/text_summary", "3880099328"),
        text_event(0, 0, "model_name/text_summary", "gemma3-4b"),
        scalar_event(0, 9, "eval/total_loss", 300), scalar_event(0, 9, "eval/total_weights", 128),
        scalar_event(0, 9, "eval/avg_loss", 2.34375f)}) {
    EXPECT_NE(bytes.find(event.substr(9)), std::string::npos);
  }
  EXPECT_EQ(Json::parse(read_file(file())).at("eval/avg_loss").as_double(), 300 / (128 + 1e-8));
}

}  // namespace
}  // namespace mt::train
