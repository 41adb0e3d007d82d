// What every command does with the streams that it was given: closed, full, and control characters.
#include <gtest/gtest.h>

#include "checkpoint/test_files.h"
#include "support/run_program.h"

namespace mt {
namespace {

using std::string_literals::operator""s;
using checkpoint::testing::TempFolder;
using testing::ProgramEnd;
using testing::run_redirected;

TEST(Streams, AnErrorThatNobodyCanReadKeepsItsCode) {
  for (const std::string to : {"2>&-", "2>/dev/full"}) {
    EXPECT_EQ(run_redirected("train steps=x " + to), 2) << to;
    EXPECT_EQ(run_redirected("decode prompt=x max_target_length=64 " + to), 2) << to;
    EXPECT_EQ(run_redirected("parity " + to), 2) << to;
    EXPECT_EQ(run_redirected("nonsense " + to), 2) << to;
    EXPECT_EQ(run_redirected("--version >/dev/full " + to), 3) << to;
  }
}

TEST(Streams, OutputThatCannotBeWrittenIsNamed) {
  const TempFolder folder;
  for (const std::string to : {">&-", ">/dev/full"}) {
    for (const std::string command : {"--version", "--help", "train --help", "decode --help"}) {
      EXPECT_EQ(run_redirected(command + " " + to + " 2>" + folder / "err"), 3) << command << to;
      EXPECT_EQ(read_file(folder / "err"),
                "maxtext: error: standard output: can't write (closed pipe or full disk)\n")
          << command << to;
    }
  }
}

// The first file that a program opens would be its stderr.
TEST(Streams, NoFileOfOursBecomesAClosedStream) {
  const TempFolder folder;
  const std::string config = folder / "c.yml";
  write_file(config, "steps: x\n");
  EXPECT_EQ(run_redirected("train " + config + " <&- >&- 2>&-"), 2);
  EXPECT_EQ(read_file(config), "steps: x\n");
}

TEST(Streams, ControlCharactersAreShown) {
  const TempFolder folder;
  const ProgramEnd doctor =
      testing::run_program(folder.path(), {"doctor"}, {{"MAXTEXT_CONFIGS", "/nowhere/\x1b[2J"}});
  EXPECT_EQ(doctor.out.find('\x1b'), std::string::npos) << doctor.out;
  const ProgramEnd named = testing::run_program(folder.path(), {"train", "a\x1b[2Jb.yml"});
  EXPECT_EQ(named.code, 3);
  EXPECT_NE(named.err.find("a\\x1b[2Jb.yml"), std::string::npos) << named.err;
  write_file(folder / "nul.yml", "attention: \"cut\\0here\"\n");
  const ProgramEnd nul = testing::run_program(folder.path(), {"train", folder / "nul.yml"});
  EXPECT_EQ(nul.code, 2);
  EXPECT_NE(nul.err.find("cut\\x00here: not one of"), std::string::npos) << nul.err;
}

}  // namespace
}  // namespace mt
