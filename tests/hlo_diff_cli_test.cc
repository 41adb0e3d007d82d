// `maxtext hlo-diff` as a user runs it: planted changes are found and their module is named.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "checkpoint/test_files.h"
#include "support/run_program.h"
#include "support/small_words.h"

namespace mt {
namespace {

using checkpoint::testing::TempFolder;
using testing::ProgramEnd;
using Words = std::vector<std::string>;

class HloDiffProgram : public ::testing::Test {
 protected:
  ProgramEnd diff(const std::string& a, const std::string& b, const Words& more = {}) const {
    Words after{"base_num_decoder_layers=" + layers_, "max_prefill_predict_length=8"};
    after.insert(after.end(), more.begin(), more.end());
    return testing::run_program(folder_.path(), testing::small_words({"hlo-diff", a, b}, after));
  }
  // The module of A at the first difference.
  void expect_found(const std::string& b, const std::string& module, const Words& more = {}) const {
    Words words{"--json"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramEnd end = diff("", b, words);
    EXPECT_EQ(end.code, 1) << b << end.err;
    const Json json = Json::parse(end.out);
    EXPECT_EQ(json.at("at_a").at("module").as_string(), module) << b << "\n" << end.out;
  }
  TempFolder folder_;
  std::string layers_ = "7";
};

TEST_F(HloDiffProgram, TwoBuildsOfOneProgramDifferNowhere) {
  for (const char* program : {"train", "gradients", "logits", "prefill", "generate"}) {
    const ProgramEnd end = diff("", "", {"--program", program, "ici_fsdp_parallelism=4"});
    EXPECT_EQ(end.code, 0) << program << end.err << end.out;
    EXPECT_TRUE(end.out.starts_with("equal: ")) << end.out;
  }
}

TEST_F(HloDiffProgram, TwoOptimisedBuildsDifferNowhere) {
  const ProgramEnd end =
      diff("", "", {"--program=logits", "--optimized", "ici_fsdp_parallelism=2"});
  EXPECT_EQ(end.code, 0) << end.err << end.out;
  EXPECT_TRUE(end.out.starts_with("equal: ")) << end.out;
}

TEST_F(HloDiffProgram, PlantedChangesAreFoundAndTheModuleNamed) {
  const std::string first = "decoder/layers/layers_0/";
  expect_found("param_scan_axis=0", first + "pre_self_attention_norm/scale");  // an axis
  expect_found("normalization_layer_epsilon=1e-3", first + "constant");        // a constant
  expect_found("weight_dtype=bfloat16", "token_embedder/embedding");           // a dtype
  expect_found("ici_fsdp_parallelism=1 ici_data_parallelism=2",                // a sharding
               "token_embedder/embedding", {"ici_fsdp_parallelism=2"});
  layers_ = "1";
  expect_found("normalization_layer_epsilon=1e-3", "decoder/multiply",
               {"--optimized", "--program=logits"});
}

TEST_F(HloDiffProgram, FilesOfDumpHlo) {
  layers_ = "1";
  const std::string dump = folder_ / "dump";
  const ProgramEnd run = testing::run_program(
      folder_.path(),
      testing::small_words({"train"}, {"run_name=x", "base_num_decoder_layers=1",
                                       "max_prefill_predict_length=8", "steps=0", "dump_hlo=true",
                                       "dump_hlo_local_dir=" + dump, "base_output_directory="}));
  ASSERT_EQ(run.code, 0) << run.err;
  const ProgramEnd end = diff(dump + "/jit_train_step.stablehlo.mlir", "");
  EXPECT_EQ(end.code, 0) << end.err << end.out;
}

TEST_F(HloDiffProgram, Faults) {
  const auto refused = [&](const std::string& a, const std::string& b, int code,
                           const std::string& text, const Words& more = {}) {
    const ProgramEnd end = diff(a, b, more);
    EXPECT_EQ(end.code, code) << end.err;
    EXPECT_NE(end.err.find(text), std::string::npos) << end.err;
    EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << end.err;
  };
  const std::string bad = folder_ / "bad.mlir", hlo = folder_ / "x.txt";
  write_file(bad, "module @x {\n  %0 = \"a.b\"(%1) : () -> ()\n}\n");
  write_file(hlo,
             "HloModule x\n\nENTRY %e (a: f32[]) -> f32[] {\n  ROOT %a = f32[] parameter(0)\n}\n");
  refused(bad, "", 3, "bad.mlir:2: %1 is used before it is defined");
  refused(folder_ / "none.mlir", "", 3, "none.mlir: ");
  refused("", "", 2, "there is no program 'trian'", {"--program", "trian"});
  refused(hlo, "", 2, "only programs of one form can be compared");
}

}  // namespace
}  // namespace mt
