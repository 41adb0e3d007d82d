// `maxtext train` as a user runs it: log lines, metrics, ends of a run, faults and exit codes.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <regex>

#include "base/json.h"
#include "checkpoint/test_files.h"
#include "data/test_models.h"
#include "support/run_program.h"
#include "train/schedule.h"

namespace mt {
namespace {

using checkpoint::testing::TempFolder;
using testing::lines_of;
using testing::ProgramEnd;
using Words = std::vector<std::string>;

class TrainProgram : public ::testing::Test {
 protected:
  // A model that compiles in a moment. Later words replace earlier ones of the same key.
  Words words(const Words& more = {}) const {
    Words base{"run_name=tiny",
               "base_output_directory=" + folder_ / "out",
               "model_name=gemma3-4b",
               "override_model_config=true",
               "base_num_decoder_layers=1",
               "base_emb_dim=16",
               "base_num_query_heads=2",
               "base_num_kv_heads=1",
               "head_dim=8",
               "base_mlp_dim=32",
               "vocab_size=300",
               "max_target_length=16",
               "per_device_batch_size=1",
               "steps=3",
               "dataset_type=synthetic",
               "enable_checkpointing=false",
               "log_config=false",
               "dtype=float32",
               "attention=dot_product",
               "enable_tensorboard=false",
               "jax_cache_dir=" + folder_ / "cache"};
    Words all{"train", MT_SOURCE_DIR "/configs/base.yml"};
    for (const std::string& word : more) {
      const std::string key = word.substr(0, word.find('=') + 1);
      std::erase_if(base, [&](const std::string& b) { return b.starts_with(key); });
    }
    all.insert(all.end(), base.begin(), base.end());
    for (const std::string& word : more) {
      if (!word.ends_with("=<none>")) all.push_back(word);
    }
    return all;
  }
  ProgramEnd run(const Words& more = {}) {
    return testing::run_program(folder_.path(), words(more));
  }
  // What is wrong is one line on stderr, and no step was made.
  std::string fault(const Words& more, int code) {
    const ProgramEnd end = run(more);
    EXPECT_EQ(end.code, code) << end.out << end.err;
    EXPECT_EQ(lines_of(end.err).size(), 1U) << end.err;
    EXPECT_TRUE(end.err.starts_with("maxtext: error: ")) << end.err;
    EXPECT_EQ(end.out.find("completed step"), std::string::npos);
    return end.err;
  }
  // Of metrics_file: one object a step.
  std::vector<Json> metrics(const std::string& file) const {
    std::vector<Json> out;
    for (const std::string& line : lines_of(read_file(file))) out.push_back(Json::parse(line));
    return out;
  }
  std::vector<double> column(const std::string& file, const std::string& key) const {
    std::vector<double> out;
    for (const Json& line : metrics(file)) out.push_back(line.at(key).as_double());
    return out;
  }

  TempFolder folder_;
};

// The reference command, its sizes made tiny: the same lines in the same order and form.
TEST_F(TrainProgram, LogLinesOfTheReferenceCommand) {
  const ProgramEnd end =
      run({"run_name=gemma3-4b-after", "dataset_path=/nowhere", "per_device_batch_size=4",
           "ici_fsdp_parallelism=4", "steps=2", "async_checkpointing=false", "dtype=bfloat16",
           "weight_dtype=bfloat16", "scan_layers=True", "attention=flash",
           "enable_tensorboard=<none>", "log_config=<none>"});
  ASSERT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(lines_of(end.err).size(), 1U);
  EXPECT_TRUE(end.err.starts_with("warning: weight_dtype=bfloat16: ")) << end.err;
  const std::string number = R"(\d+\.\d+)", gb = R"(\d+\.\d GB)";
  const std::string device =
      "\tUsing \\(GB\\) " + number + " / " + number + R"( \(\d+\.\d{6}%\) on .+)";
  const std::string ram = "\tUsing \\(GB\\) " + number + " / " + number +
                          R"( \(\d+\.\d{6}%\) -->  Available:)" + number;
  const auto step = [&](int n) {
    return "completed step: " + std::to_string(n) +
           R"(, seconds: \d+\.\d{3}, TFLOP/s/device: \d+\.\d{3}, Tokens/s/device: \d+\.\d{3}, total_weights: 256, loss: \d+\.\d{3})";
  };
  const Words expected{
      R"(Updating keys from env and command line: \['run_name', .*\])",
      "Running Model: gemma3-4b",
      R"(Updating keys from model: \[.*'sliding_window_size'.*\])",
      "Config param adam_b1: 0.9",
      "Config param weight_dtype: bfloat16",
      "System Information: PJRT Plugin: .+",
      R"(System Information: PJRT API Version: \d+\.\d+)",
      "System Information: Backend: cpu",
      R"(Num_devices: 4, shape \(1, 1, 4, 1, 1, 1, 1, 1, 1, 1, 1, 1\))",
      "",
      "Memstats: After params initialized:",
      device,
      device,
      device,
      device,
      "",
      "RAMstats: After params initialized:",
      ram,
      "Total memory size: " + gb + ", Output size: " + gb + ", Temp size: " + gb +
          ", Argument size: " + gb + ", Host temp size: " + gb + R"(\.)",
      "Per train step:",
      R"( Total TFLOPs: \d+\.\d\d )",
      R"( split as \d+\.\d\d% learnable weight flops and \d+\.\d\d% attention flops)",
      R"(number parameters: \d+\.\d{3} billion)",
      step(0),
      "To see full metrics 'tensorboard --logdir=.*/out/gemma3-4b-after/tensorboard/.*'",
      step(1)};
  const Words lines = lines_of(end.out);
  size_t at = 0;
  for (const std::string& form : expected) {
    const std::regex pattern(form);
    while (at < lines.size() && !std::regex_match(lines[at], pattern)) ++at;
    ASSERT_LT(at, lines.size()) << "no line of this form after the one before: " << form << "\n"
                                << end.out;
    ++at;
  }
  EXPECT_EQ(end.out.find("hf_access_token"), std::string::npos);
  bool has_events = false;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder_ / "out")) {
    has_events |= file.path().filename().string().starts_with("events.out.tfevents.");
  }
  EXPECT_TRUE(has_events);
}

// B3, and that a run can be repeated and cut otherwise: one device, again, and fsdp over four.
TEST_F(TrainProgram, MetricsFileRatesAndEqualLossesOnAnyMesh) {
  const auto file = [&](const char* name) { return folder_ / name; };
  const Words same{"steps=12", "learning_rate=3e-3"};
  const auto with = [&](Words more) {
    more.insert(more.end(), same.begin(), same.end());
    const ProgramEnd end = run(more);
    EXPECT_EQ(end.code, 0) << end.err;
    EXPECT_EQ(end.err, "");
  };
  with({"per_device_batch_size=4", std::string("metrics_file=") + file("one")});
  with({"per_device_batch_size=4", std::string("metrics_file=") + file("again")});
  with({"ici_fsdp_parallelism=4", std::string("metrics_file=") + file("four"),
        "record_internal_nn_metrics=1"});
  const auto one = metrics(file("one"));
  ASSERT_EQ(one.size(), 12U);
  const std::vector<double> losses = column(file("one"), "learning/loss");
  EXPECT_EQ(losses, column(file("again"), "learning/loss")) << "bit for bit";
  const std::vector<double> four = column(file("four"), "learning/loss");
  ASSERT_EQ(four.size(), 12U);
  for (size_t s = 0; s < 12; ++s) {
    EXPECT_NEAR(four[s], losses[s], 1e-5) << s;
    EXPECT_EQ(one[s].at("step").as_double(), static_cast<double>(s));
    EXPECT_EQ(one[s].at("run_name").as_string(), "tiny");
    EXPECT_EQ(one[s].at("learning/total_weights").as_double(), 64);
    const float rate = train::learning_rate_at({3e-3, 0.1, 0.1, 12}, static_cast<int64_t>(s));
    EXPECT_EQ(one[s].at("learning/current_learning_rate").as_double(), static_cast<double>(rate));
    for (const char* key : {"learning/grad_norm", "learning/raw_grad_norm", "learning/param_norm",
                            "perf/step_time_seconds", "perf/per_device_tflops_per_sec",
                            "perf/per_device_tokens_per_sec"}) {
      EXPECT_GT(one[s].at(key).as_double(), 0) << key;
    }
  }
  EXPECT_EQ(one[0].at("learning/current_learning_rate").as_double(), 0);  // warm-up: int(1.2) steps
  EXPECT_EQ(losses[0], losses[1]) << "a rate of 0 changes nothing";
  EXPECT_LT(losses[11], losses[1] - 0.01);
  // record_internal_nn_metrics
  const Json internal = metrics(file("four"))[0];
  EXPECT_GT(internal.at("activ_stdev/layer_000").as_double(), 0);
  EXPECT_LT(internal.at("activ_fraction_zero/layer_000").as_double(), 0.01);
  EXPECT_NE(internal.find("activ_mean/layer_000"), nullptr);
  EXPECT_EQ(internal.find("activ_mean/layer_001"), nullptr);
  EXPECT_EQ(one[0].find("activ_mean/layer_000"), nullptr);
}

TEST_F(TrainProgram, SigintEndsAfterTheStep) {
  testing::ProgramRun program(folder_.path(), words({"steps=100000"}));
  ASSERT_TRUE(program.wait_for("completed step: 3,"));
  program.send(SIGINT);
  const ProgramEnd end = program.wait();
  EXPECT_EQ(end.code, 130);
  EXPECT_EQ(end.signal_number, 0);
  const std::string last = lines_of(end.out).back();
  EXPECT_TRUE(
      std::regex_match(last, std::regex(R"(Stopped by SIGINT after \d+ of 100000 steps\.)")))
      << last;
  EXPECT_NE(end.err.find("SIGINT: stopping after this step"), std::string::npos) << end.err;
}

TEST_F(TrainProgram, SighupAndSigtermEndAfterTheStepToo) {
  for (const auto& [number, name] : {std::pair{SIGHUP, "SIGHUP"}, std::pair{SIGTERM, "SIGTERM"}}) {
    testing::ProgramRun program(folder_.path(), words({"steps=100000"}));
    ASSERT_TRUE(program.wait_for("completed step: 1,"));
    program.send(number);
    const ProgramEnd end = program.wait();
    EXPECT_EQ(end.code, 128 + number);
    EXPECT_EQ(end.err, std::string(name) + ": stopping after this step; once more stops at once\n");
    EXPECT_TRUE(lines_of(end.out).back().starts_with(std::string("Stopped by ") + name));
  }
}

// Compiling can't be stopped, only ended; not without a word.
TEST_F(TrainProgram, ASignalDuringSetUp) {
  testing::ProgramRun program(folder_.path(), words({"jax_cache_dir="}));
  ASSERT_TRUE(program.wait_for("Compiling the train step"));
  program.send(SIGTERM);
  const ProgramEnd end = program.wait();
  EXPECT_EQ(end.code, 143);
  EXPECT_EQ(end.err, "SIGTERM: stopped before the first step\n");
  EXPECT_EQ(end.out.find("completed step"), std::string::npos);
}

TEST_F(TrainProgram, ALossThatIsNotFiniteIsSaidOnce) {
  const ProgramEnd end = run({"z_loss_multiplier=3e38", "steps=4"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(lines_of(end.err).size(), 1U) << end.err;
  EXPECT_TRUE(end.err.starts_with("warning: step 0: the loss is inf")) << end.err;
  EXPECT_NE(end.out.find("completed step: 3,"), std::string::npos);
}

TEST_F(TrainProgram, MetricsThatCannotBeWrittenEndInAnError) {
  const ProgramEnd end = run({"metrics_file=/dev/full"});
  EXPECT_EQ(end.code, 3);
  EXPECT_EQ(end.err,
            "maxtext: error: metrics_file=/dev/full: can't be written: No space left on device\n");
}

TEST_F(TrainProgram, ABatchThatCannotFitNamesItsKeys) {
  for (const char* word :
       {"max_target_length=1000000000", "gradient_accumulation_steps=1000000000"}) {
    const auto start = std::chrono::steady_clock::now();
    const std::string text = fault({word, "num_vocab_tiling=1"}, 5);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_NE(text.find(word), std::string::npos) << text;
    EXPECT_NE(text.find("GB of memory is available"), std::string::npos) << text;
    EXPECT_LT(seconds.count(), 5);
  }
}

TEST_F(TrainProgram, TextIsPackedAndItsEndIsSaid) {
  const std::string tokenizer = folder_ / "tokenizer.model", text = folder_ / "text.jsonl";
  write_file(tokenizer, data::write_model(data::tiny_spec()));
  std::string lines;
  for (int i = 0; i < 9; ++i) lines += "{\"text\": \"the cat sat on the mat\"}\n";
  write_file(text, lines);
  const ProgramEnd end = run({"dataset_type=text", "dataset_path=" + text,
                              "tokenizer_path=" + tokenizer, "steps=50", "max_target_length=32",
                              "per_device_batch_size=2", "metrics_file=" + folder_ / "metrics"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_TRUE(std::regex_match(
      lines_of(end.out).back(),
      std::regex(R"(The data ended after [1-9]\d* of 50 steps \(num_epoch=1\)\.)")))
      << end.out;
  // Every document's tokens but its first are targets, in whatever rows they came.
  const data::Tokenizer reader = data::Tokenizer::from_file(tokenizer);
  const auto ids = reader.encode("the cat sat on the mat", {.add_bos = true, .add_eos = true});
  double targets = 0;
  for (const double w : column(folder_ / "metrics", "learning/total_weights")) targets += w;
  EXPECT_EQ(targets, 9 * (static_cast<double>(ids.size()) - 1));
}

// Said before anything is compiled; a text that fills no row is still a step.
TEST_F(TrainProgram, DataWithoutABatch) {
  const std::string tokenizer = folder_ / "tokenizer.model";
  write_file(tokenizer, data::write_model(data::tiny_spec()));
  const auto with = [&](const std::string& file, const std::string& text, const Words& more = {}) {
    write_file(folder_ / file, text);
    Words all{"dataset_type=text", "dataset_path=" + folder_ / file, "tokenizer_path=" + tokenizer};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const auto expected = [&](const std::string& file, int epochs) {
    return "maxtext: error: The data ended after 0 of 3 steps (num_epoch=" +
           std::to_string(epochs) + "): no document in dataset_path=" + folder_ / file +
           " has two tokens\n";
  };
  EXPECT_EQ(fault(with("empty.txt", ""), 3), expected("empty.txt", 1));
  EXPECT_EQ(fault(with("blank.txt", "\n\n  \n\n", {"num_epoch=3"}), 3), expected("blank.txt", 3));
  EXPECT_EQ(fault(with("empty.jsonl", ""), 3), expected("empty.jsonl", 1));
  EXPECT_EQ(fault(with("blank.jsonl", "\n\n"), 3), expected("blank.jsonl", 1));
  EXPECT_EQ(fault(with("one.txt", "t", {"add_bos=false", "add_eos=false"}), 3),
            expected("one.txt", 1));
  const ProgramEnd none = run(with("empty.txt", "", {"steps=0"}));
  EXPECT_EQ(none.code, 0) << none.err;
  const ProgramEnd little = run(with("little.txt", "the cat"));
  EXPECT_EQ(little.code, 0) << little.err;
  EXPECT_EQ(lines_of(little.out).back(), "The data ended after 1 of 3 steps (num_epoch=1).");
}

TEST_F(TrainProgram, NoStepsAndTheProgramsText) {
  const ProgramEnd end = run({"steps=0", "learning_rate_schedule_steps=10", "dump_hlo=true",
                              "dump_hlo_local_dir=" + folder_ / "hlo"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.out.find("Total memory size: "), std::string::npos);
  EXPECT_NE(end.out.find(" Total TFLOPs: "), std::string::npos);
  EXPECT_EQ(end.out.find("completed step"), std::string::npos);
  const std::string text = read_file(folder_ / "hlo/jit_train_step.stablehlo.mlir");
  EXPECT_NE(text.find("module @jit_train_step"), std::string::npos);
  size_t others = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "hlo")) {
    others += entry.path().extension() == ".txt" ? 1 : 0;
  }
  EXPECT_GT(others, 0U) << "XLA's own dump";
}

TEST_F(TrainProgram, FaultsOfTheConfiguration) {
  EXPECT_NE(fault({"run_name="}, 2).find("need a real run_name"), std::string::npos);
  EXPECT_NE(fault({"stesp=5"}, 2).find("steps"), std::string::npos);
  EXPECT_NE(fault({"steps=abc"}, 2).find("steps"), std::string::npos);
  EXPECT_NE(fault({"dtype=float16"}, 2).find("use bfloat16"), std::string::npos);  // A8
  EXPECT_NE(fault({"attention=splash"}, 2).find("splash"), std::string::npos);
  EXPECT_NE(fault({"remat_policy=some"}, 2).find("some"), std::string::npos);
  EXPECT_NE(fault({"override_model_config=false"}, 2).find("base_emb_dim"), std::string::npos);
  EXPECT_NE(fault({"dataset_type=text"}, 2).find("dataset_path"), std::string::npos);
  EXPECT_NE(fault({"base_emb_dim=18", "ici_fsdp_parallelism=4"}, 2).find("axis embed has size 18"),
            std::string::npos);
  EXPECT_NE(fault({"ici_fsdp_parallelism=4", "per_device_batch_size=0.5"}, 2)
                .find("per_device_batch_size"),
            std::string::npos);
}

TEST_F(TrainProgram, FaultsOfFiles) {
  EXPECT_NE(fault({"metrics_file=/proc/none/m"}, 3).find("metrics_file=/proc/none/m"),
            std::string::npos);
  EXPECT_NE(fault({"load_parameters_path=/nowhere/x.gguf"}, 3).find("/nowhere/x.gguf"),
            std::string::npos);
  const std::string tokenizer = folder_ / "tokenizer.model";
  write_file(tokenizer, data::write_model(data::tiny_spec()));
  EXPECT_NE(
      fault({"dataset_type=text", "dataset_path=/nowhere.txt", "tokenizer_path=" + tokenizer}, 3)
          .find("/nowhere.txt"),
      std::string::npos);
  write_file(folder_ / "t.txt", "the cat");
  EXPECT_NE(fault({"dataset_type=text", "dataset_path=" + folder_ / "t.txt",
                   "tokenizer_path=" + tokenizer, "vocab_size=64"},
                  2)
                .find("291 pieces"),
            std::string::npos);
  EXPECT_NE(fault({"pjrt_plugin=/nowhere/plugin.so"}, 4).find("/nowhere/plugin.so"),
            std::string::npos);
  // Weights of other sizes.
  EXPECT_NE(fault({std::string("load_parameters_path=") + MT_SOURCE_DIR "/tests/golden/hf"}, 3)
                .find("tests/golden/hf"),
            std::string::npos);
}

// Weights that fit by their shapes, of another model by its numbers.
TEST_F(TrainProgram, WeightsOfOtherNumbers) {
  const Words hf{std::string("load_parameters_path=") + MT_SOURCE_DIR "/tests/golden/hf",
                 "base_num_decoder_layers=8",
                 "base_emb_dim=64",
                 "base_num_query_heads=4",
                 "base_num_kv_heads=2",
                 "head_dim=16",
                 "base_mlp_dim=128",
                 "vocab_size=256",
                 "rope_linear_scaling_factor=1.0",
                 "steps=1"};
  const auto with = [&](const std::string& word) {
    Words all = hf;
    all.push_back(word);
    return all;
  };
  EXPECT_NE(fault(with("sliding_window_size=9"), 2)
                .find("tests/golden/hf/config.json: sliding_window is 8, but the run has "
                      "sliding_window_size=9"),
            std::string::npos);
  const ProgramEnd same = run(with("sliding_window_size=8"));
  EXPECT_EQ(same.code, 0) << same.err;
}

// Far more than any machine has, said before anything of it is allocated.
TEST_F(TrainProgram, AModelThatCannotFit) {
  const auto start = std::chrono::steady_clock::now();
  const ProgramEnd end = testing::run_program(
      folder_.path(), {"train", "run_name=x", "model_name=gemma3-27b", "override_model_config=true",
                       "base_num_decoder_layers=6200", "dataset_type=synthetic", "log_config=false",
                       "jax_cache_dir="});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(end.code, 5) << end.err;
  EXPECT_EQ(lines_of(end.err).size(), 1U);
  EXPECT_TRUE(std::regex_search(
      end.err,
      std::regex(
          R"(gemma3-27b needs \d+\.\d GB \(parameters \d+\.\d, optimizer \d+\.\d, gradients \d+\.\d\) but \d+\.\d GB of RAM is available, \d+\.\d GB too little: use )")))
      << end.err;
  EXPECT_NE(
      end.err.find(
          "use a smaller model_name, weight_dtype=bfloat16, opt_type=sgd, a machine with more RAM"),
      std::string::npos)
      << end.err;
  EXPECT_LT(seconds.count(), 5) << "on a busy machine; quiet: 0.1 s";
}

}  // namespace
}  // namespace mt
