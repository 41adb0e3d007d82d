// `maxtext inspect` as a user runs it.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "checkpoint/test_files.h"
#include "support/run_program.h"

namespace mt {
namespace {

using checkpoint::testing::TempFolder;
using testing::ProgramEnd;
using Words = std::vector<std::string>;

class InspectProgram : public ::testing::Test {
 protected:
  ProgramEnd inspect(const Words& more) const {
    Words words{"inspect", MT_SOURCE_DIR "/configs/base.yml"};
    words.insert(words.end(), more.begin(), more.end());
    return testing::run_program(folder_.path(), words);
  }
  TempFolder folder_;
};

const Json& variable(const Json& inspection, const std::string& list, const std::string& path) {
  for (const Json& module : inspection.at(list).as_array()) {
    for (const Json& v : module.at("variables").as_array()) {
      if (v.at("path").as_string() == path) return v;
    }
  }
  throw fail(ErrorKind::kIo, "no {}", path);
}

TEST_F(InspectProgram, CountsWhatEveryDeviceHolds) {
  const ProgramEnd end = inspect({"--json", "model_name=gemma3-4b", "ici_fsdp_parallelism=2",
                                  "ici_tensor_parallelism=2", "weight_dtype=bfloat16"});
  ASSERT_EQ(end.code, 0) << end.err;
  const Json json = Json::parse(end.out);
  const Json& root = json.at("modules").as_array()[0];
  EXPECT_EQ(root.at("type").as_string(), "Gemma3Model");
  EXPECT_EQ(root.at("elements").as_int(), 3'880'099'328);
  EXPECT_EQ(root.at("bytes").as_int(), 2 * int64_t{3'880'099'328});
  EXPECT_EQ(json.at("devices").as_int(), 4);

  const std::string wo = "decoder/layers/layers_3/mlp/wo/kernel";
  const Json& kernel = variable(json, "modules", wo);
  EXPECT_EQ(kernel.at("shape").dump(), "[10240,5,2560]");
  EXPECT_EQ(kernel.at("axes").dump(), R"(["mlp","layers","embed"])");
  EXPECT_EQ(kernel.at("sharding").as_string(), "P(tensor, -, fsdp)");
  EXPECT_EQ(kernel.at("shard_shape").dump(), "[5120,5,1280]");
  EXPECT_EQ(kernel.at("bytes_per_device").as_int(), 5120 * 5 * 1280 * 2);

  // The root's bytes on a device are those of its variables; AdamW has two of everything.
  int64_t bytes = 0;
  for (const Json& m : json.at("modules").as_array()) {
    for (const Json& v : m.at("variables").as_array()) bytes += v.at("bytes_per_device").as_int();
  }
  EXPECT_EQ(root.at("bytes_per_device").as_int(), bytes);
  const Json& optimizer = json.at("optimizer").as_array()[0];
  EXPECT_EQ(optimizer.at("elements").as_int(), 2 * int64_t{3'880'099'328} + 1);
}

TEST_F(InspectProgram, TextStopsAtADepth) {
  const ProgramEnd whole = inspect({"model_name=gemma3-270m"});
  const ProgramEnd cut = inspect({"model_name=gemma3-270m", "--depth", "1"});
  ASSERT_EQ(cut.code, 0) << cut.err;
  EXPECT_NE(whole.out.find("layers_5"), std::string::npos);
  EXPECT_EQ(cut.out.find("layers_5"), std::string::npos) << cut.out;
  EXPECT_NE(cut.out.find("Decoder"), std::string::npos) << cut.out;
  EXPECT_NE(cut.out.find("gemma3-270m: 268098176 parameters"), std::string::npos) << cut.out;
}

TEST_F(InspectProgram, ThePageNeedsNothingElse) {
  const std::string file = folder_ / "page.html";
  ASSERT_EQ(inspect({"model_name=gemma3-270m", "--html", file}).code, 0);
  const std::string page = read_file(file);
  EXPECT_NE(page.find("Gemma3ScannableBlock"), std::string::npos);
  EXPECT_NE(page.find("Optimizer state"), std::string::npos);
  for (const char* outside : {"http", "src=", "<script", "<link"}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
}

TEST_F(InspectProgram, Faults) {
  const auto refused = [&](const Words& words, int code, const std::string& text) {
    const ProgramEnd end = inspect(words);
    EXPECT_EQ(end.code, code) << end.err;
    EXPECT_NE(end.err.find(text), std::string::npos) << end.err;
    EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << end.err;
  };
  refused({"model_name=gemma3-270m", "ici_fsdp_parallelism=7"}, 2, "not divisible by mesh axis");
  refused({"--jsn"}, 2, "--jsn: there is no such option (--help lists them)");
  refused({"--depth", "x"}, 2, "--depth x: expected a whole number from 0 up");
  refused({"--html", folder_ / "no/page.html"}, 3, "no/page.html");
}

}  // namespace
}  // namespace mt
