// `maxtext plan` as a user runs it: the memory line, machines that aren't here, faults.
#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/test_files.h"
#include "support/run_program.h"

namespace mt {
namespace {

using checkpoint::testing::TempFolder;
using testing::ProgramEnd;
using Words = std::vector<std::string>;

class PlanProgram : public ::testing::Test {
 protected:
  // A model that compiles in a moment.
  static Words words(const std::string& command, const Words& more) {
    Words all{command,
              MT_SOURCE_DIR "/configs/base.yml",
              "model_name=gemma3-4b",
              "override_model_config=true",
              "base_num_decoder_layers=1",
              "base_emb_dim=16",
              "base_num_query_heads=2",
              "base_num_kv_heads=1",
              "head_dim=8",
              "base_mlp_dim=32",
              "vocab_size=304",
              "max_target_length=16",
              "per_device_batch_size=1",
              "dataset_type=synthetic"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  ProgramEnd plan(const Words& more = {}) const {
    return testing::run_program(folder_.path(), words("plan", more));
  }
  TempFolder folder_;
};

TEST_F(PlanProgram, SaysWhatTheStepNeedsHere) {
  const ProgramEnd end = plan({"ici_fsdp_parallelism=4", "attention=dot_product"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.out.find("Planning for this machine: 4 x cpu"), std::string::npos) << end.out;
  EXPECT_NE(end.out.find("Total memory size: 0.0 GB"), std::string::npos) << end.out;
  EXPECT_NE(end.out.find("It fits: "), std::string::npos) << end.out;
}

TEST_F(PlanProgram, UnknownTopologiesListTheKnownOnes) {
  const ProgramEnd end = plan({"compile_topology=v5p-9"});
  EXPECT_EQ(end.code, 2);
  EXPECT_NE(end.err.find("compile_topology=v5p-9: there is no such topology; known: "),
            std::string::npos)
      << end.err;
  for (const char* name : {"v5p-8", "v5e-16", "v6e-256"}) {
    EXPECT_NE(end.err.find(name), std::string::npos) << end.err;
  }
  EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << end.err;
}

TEST_F(PlanProgram, TrainRefusesAMachineThatIsNotHere) {
  const ProgramEnd end = testing::run_program(
      folder_.path(), words("train", {"run_name=x", "compile_topology=v5p-8"}));
  EXPECT_EQ(end.code, 2);
  EXPECT_NE(end.err.find("compile_topology=v5p-8: train runs on the devices that are here"),
            std::string::npos)
      << end.err;
}

}  // namespace
}  // namespace mt
