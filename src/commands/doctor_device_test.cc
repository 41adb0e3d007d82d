#include "commands/doctor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"

namespace mt::commands {
namespace {

namespace fs = std::filesystem;
using State = Finding::State;

class DoctorTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("doctor_test." + std::to_string(getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    setenv("MAXTEXT_DEPS", MT_DEPS, 1);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Places empty_places() const { return {folder_ / "deps", folder_ / "configs", folder_ / "cache"}; }
  static Finding find(const std::vector<Finding>& findings, const std::string& name) {
    for (const Finding& finding : findings) {
      if (finding.name == name) return finding;
    }
    ADD_FAILURE() << "no finding " << name;
    return {};
  }

  fs::path folder_;
};

TEST_F(DoctorTest, TheCpuPluginAdds) {
  const Finding finding = find(examine(empty_places()), "cpu plugin");
  EXPECT_EQ(finding.state, State::kOk) << finding.detail;
  EXPECT_NE(finding.detail.find("1 + 1 = 2"), std::string::npos) << finding.detail;
  EXPECT_NE(finding.detail.find("PJRT 0."), std::string::npos) << finding.detail;
}

TEST_F(DoctorTest, AMissingPluginIsAFindingAndSaysHowToGetIt) {
  setenv("MAXTEXT_PJRT_CPU", (folder_ / "none.so").c_str(), 1);
  const Finding finding = find(examine(empty_places()), "cpu plugin");
  unsetenv("MAXTEXT_PJRT_CPU");
  EXPECT_EQ(finding.state, State::kMissing);
  EXPECT_NE(finding.detail.find("none.so"), std::string::npos) << finding.detail;
  EXPECT_EQ(finding.fix, "run: make setup");
}

TEST_F(DoctorTest, FilesThatAreNotThere) {
  const auto findings = examine(empty_places());
  EXPECT_EQ(find(findings, "configs").state, State::kMissing);
  EXPECT_EQ(find(findings, "weights").state, State::kAbsent);
  EXPECT_EQ(find(findings, "tokenizer").state, State::kAbsent);
  EXPECT_EQ(find(findings, "tokenizer").fix, "run: make setup");
  EXPECT_EQ(find(findings, "compile cache").state, State::kOk);  // can be made
}

TEST_F(DoctorTest, FilesThatAreThere) {
  const Places places = empty_places();
  make_directories(places.configs);
  make_directories(places.deps + "/weights");
  write_file(places.configs + "/base.yml", "steps: 1\n");
  write_file(places.deps + "/weights/tokenizer.gemma3", "");
  const auto findings = examine(places);
  EXPECT_EQ(find(findings, "configs").state, State::kOk);
  EXPECT_EQ(find(findings, "tokenizer").state, State::kAbsent);
  EXPECT_NE(find(findings, "tokenizer").detail.find("is empty"), std::string::npos);
}

TEST_F(DoctorTest, SaysWhatDecodingNeeds) {
  const auto line = [](State plugin, State weights) {
    return decoding_line({{plugin, "cpu plugin", "", ""},
                          {State::kOk, "configs", "", ""},
                          {weights, "weights", "", ""}});
  };
  EXPECT_EQ(line(State::kMissing, State::kOk), "Decoding on CPU does not work yet.");
  EXPECT_TRUE(line(State::kOk, State::kOk).starts_with("Decoding on CPU works: "));
  const std::string needs = line(State::kOk, State::kAbsent);
  for (const char* part :
       {"needs weights", "load_parameters_path=", "tokenizer_path=", "make setup"}) {
    EXPECT_NE(needs.find(part), std::string::npos) << needs;
  }
}

TEST_F(DoctorTest, ACacheFolderThatIsAFile) {
  Places places = empty_places();
  write_file(places.cache, "x");
  const Finding finding = find(examine(places), "compile cache");
  EXPECT_EQ(finding.state, State::kAbsent);
  EXPECT_NE(finding.fix.find("jax_cache_dir"), std::string::npos);
}

TEST_F(DoctorTest, TakesNoArguments) {
  try {
    doctor({"steps=1"});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_STREQ(error.what(), "doctor takes no arguments, found 'steps=1'");
  }
}

}  // namespace
}  // namespace mt::commands
