// Configuration files: inheritance, model files, faults, hostile bytes.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "config/config.h"

namespace mt::config {
namespace {

const std::string kConfigs = std::string(MT_SOURCE_DIR) + "/configs";
const std::string kBase = kConfigs + "/base.yml";

// A folder of its own for each test, removed when the test ends.
std::string test_folder() {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  return testing::TempDir() + "/config_" + std::to_string(::getpid()) + "_" +
         info->test_suite_name() + "_" + info->name();
}

class RemoveFolders : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo&) override { std::filesystem::remove_all(test_folder()); }
};

const bool kRemovesFolders = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new RemoveFolders);
  return true;
}();

std::string write_config(const std::string& name, const std::string& text) {
  const std::string path = test_folder() + "/" + name;
  make_directories(path.substr(0, path.rfind('/')));
  write_file(path, text);
  return path;
}

Config load_file(const std::string& path, std::vector<std::string> words = {}) {
  words.insert(words.begin(), path);
  return Config::load(words, {{"MAXTEXT_CONFIGS", kConfigs}});
}

std::string file_refusal(const std::string& path) {
  try {
    load_file(path);
  } catch (const Error& e) {
    std::string what = e.what();
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    const size_t slash = path.rfind('/');  // without the folder
    for (size_t at; (at = what.find(path.substr(0, slash + 1))) != std::string::npos;) {
      what.erase(at, slash + 1);
    }
    return what;
  }
  return "accepted";
}

TEST(Models, AModelBesideTheConfigComesFirst) {
  write_config("models/mine.yml", "base_emb_dim: 96\nlogical_axis_rules: [[norm, fsdp]]\n");
  const std::string path = write_config("my.yml", "base_config: base.yml\nbase_emb_dim: 32\n");
  const Config config = load_file(path, {"model_name=mine"});
  EXPECT_EQ(config.integer("emb_dim"), 96);
  // One rule is replaced by name, the others stay.
  const std::vector<sharding::AxisRule> base = load_file(kBase).logical_axis_rules();
  EXPECT_EQ(config.logical_axis_rules(), sharding::replace_rules(base, {{"norm", {"fsdp"}}}));
  EXPECT_NE(config.logical_axis_rules(), base);
}

TEST(Files, WithoutAFileThePackagedOneIsRead) {
  const Config config = Config::load({"steps=4"}, {{"MAXTEXT_CONFIGS", kConfigs}});
  EXPECT_EQ(config.integer("steps"), 4);
  EXPECT_EQ(config.text("config_path"), kBase);
  EXPECT_FALSE(config.logical_axis_rules().empty());
}

TEST(Files, AFileInheritsAndTheTableFillsTheRest) {
  write_config("parent.yml", "steps: 11\nlearning_rate: 1\nlog_period: 3\n");
  const Config config =
      load_file(write_config("child.yml", "base_config: parent.yml\nsteps: 1_2\nrun_name: ~\n"));
  EXPECT_EQ(config.integer("steps"), 12);
  EXPECT_EQ(config.integer("log_period"), 3);
  EXPECT_DOUBLE_EQ(config.number("learning_rate"), 1);
  EXPECT_EQ(config.text("run_name"), "");
  EXPECT_EQ(config.logical_axis_rules(), load_file(kBase).logical_axis_rules());
  EXPECT_EQ(load_file(write_config("empty.yml", "# nothing\n")).integer("steps"), 150001);
}

TEST(Files, FaultsAreOneLineWithThePlace) {
  const auto fault = [](const std::string& text) {
    return file_refusal(write_config("x.yml", text));
  };
  EXPECT_EQ(fault("- a\n"), "x.yml:1: expected a map of key: value lines");
  EXPECT_EQ(fault("steps: 1\nsteps: 2\n"), "x.yml:2: key 'steps' is set twice");
  EXPECT_EQ(fault("\n\nstesp: 1\n"), "x.yml:3: Key stesp isn't known. Did you mean 'steps'?");
  EXPECT_EQ(fault("num_experts: 1\n"),
            "x.yml:1: Key num_experts is a MaxText key that isn't supported yet by maxtext.cpp.");
  EXPECT_EQ(fault("steps: many\n"), "x.yml:1: key 'steps': expected an integer");
  EXPECT_EQ(fault("steps: '5'\n"), "x.yml:1: key 'steps': expected an integer");
  EXPECT_EQ(fault("steps: [5]\n"), "x.yml:1: key 'steps': expected an integer");
  EXPECT_EQ(fault("packing: yes\n"), "x.yml:1: key 'packing': expected true or false");
  EXPECT_EQ(fault("run_name: {a: b}\n"), "x.yml:1: key 'run_name': expected a text");
  EXPECT_EQ(fault("steps: 5\nopt_type: muon\n"),
            "x.yml:2: opt_type=muon isn't supported yet by maxtext.cpp (what works: adamw, sgd)");
  EXPECT_EQ(fault("[a, b]: 5\n"), "x.yml:1: a key must be a plain text");
  EXPECT_EQ(fault("steps: 5\n---\nsteps: 6\n"), "x.yml:3: a second document (---); expected one");
  EXPECT_EQ(fault("logical_axis_rules: [[embed]]\n"),
            "x.yml:1: key 'logical_axis_rules': expected a list of [logical axis, [mesh axes]]");
  EXPECT_EQ(fault("a: &x [*x]\n").substr(0, 22), "x.yml:1: Key a isn't k");
  EXPECT_EQ(fault("run_name: [a, b\n"), "x.yml:2: not valid YAML: end of sequence flow not found");
  EXPECT_EQ(fault("base_config: nowhere.yml\n"),
            "x.yml:1: base_config: no nowhere.yml beside the file or in the configs folder");
  EXPECT_EQ(fault("base_config: x.yml\n"), "x.yml:1: more than 10 files inherit from each other");
}

TEST(Files, UnreadableOnes) {
  EXPECT_NE(file_refusal("/nowhere/x.yml").find("No such file"), std::string::npos)
      << file_refusal("/nowhere/x.yml");
  const std::string folder = write_config("d.yml/inner", "");
  EXPECT_NE(file_refusal(folder.substr(0, folder.rfind('/'))).find("directory"), std::string::npos);
  EXPECT_NE(file_refusal("/dev/zero"), "accepted");
}

TEST(Files, HostileOnes) {
  EXPECT_EQ(file_refusal(write_config("big.yml", std::string((1 << 20) + 1, '#'))),
            "big.yml: 1048577 bytes, a configuration has at most 1048576");
  for (const char* open : {"[", "{a: ", "- ", "? "}) {
    std::string text = "steps: ";
    for (int i = 0; i < 100'000; ++i) text += open;
    EXPECT_NE(file_refusal(write_config("deep.yml", text)), "accepted") << open;
  }
  // Each anchor holds ten of the one before: 10^9 scalars if anybody walked them.
  std::string bomb = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 10; ++i) {
    bomb += fmt::format("a{0}: &a{0} [", i);
    for (int j = 0; j < 10; ++j) bomb += fmt::format("*a{},", i - 1);
    bomb += "]\n";
  }
  EXPECT_EQ(file_refusal(write_config("bomb.yml", bomb)).substr(0, 26),
            "bomb.yml:1: Key a0 isn't k");
  std::string rules = "mesh_axes: &m [";
  for (int i = 0; i < 100'000; ++i) rules += "a,";
  rules += "]\nlogical_axis_rules: [";
  for (int i = 0; i < 10'000; ++i) rules += "[embed, *m],";
  EXPECT_EQ(file_refusal(write_config("rules.yml", rules + "]\n")),
            "rules.yml:1: key 'mesh_axes': expected a list of texts");
}

TEST(Files, RulesOfTheCommandLineStay) {
  const Config config = load_file(write_config("x.yml", "steps: 1\n"),
                                  {"logical_axis_rules=[[embed, [fsdp]], [kv, []]]"});
  const std::vector<sharding::AxisRule> expected = {{"embed", {"fsdp"}}, {"kv", {}}};
  EXPECT_EQ(config.logical_axis_rules(), expected);
}

// Holds with and without a configs folder beside the test program (it depends on the build folder).
TEST(Files, WithoutAConfigsFolderWordsAreCheckedFirst) {
  const std::string path = write_config("x.yml", "steps: 1\n");
  const auto refusal = [&](const std::string& word) -> std::string {
    try {
      Config::load({path, word}, {});
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal("steps=abc"),
            "Couldn't parse value from CLI or ENV 'abc' for key 'steps': expected an integer");
  EXPECT_EQ(refusal("logical_axis_rules=[[embed, [fsdp]]]"), "accepted");
}

TEST(Files, AWrongConfigsFolder) {
  EXPECT_THROW(Config::load({}, {{"MAXTEXT_CONFIGS", "/nowhere"}}), Error);
}

}  // namespace
}  // namespace mt::config
