#include "commands/commands.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "commands/machine.h"

namespace mt::commands {
namespace {

struct Ran {
  int code = 0;
  std::string out;
  std::string err;
};

Ran run_with(const std::vector<std::string>& args, std::span<const Command> commands) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Ran ran;
  ran.code = run(args, commands);
  ran.out = testing::internal::GetCapturedStdout();
  ran.err = testing::internal::GetCapturedStderr();
  return ran;
}

Ran run_throwing(const std::function<void()>& thrower) {
  const std::vector<Command> commands = {{"go", "throws", [&](const std::vector<std::string>&) {
                                            thrower();
                                            return 0;
                                          }}};
  return run_with({"go"}, commands);
}

TEST(Commands, HelpListsEveryCommand) {
  for (const std::string word : {"--help", "-h", "help"}) {
    const Ran ran = run_with({word}, all_commands());
    EXPECT_EQ(ran.code, 0);
    EXPECT_EQ(ran.err, "");
    for (const Command& command : all_commands()) {
      EXPECT_NE(ran.out.find("  " + command.name + " "), std::string::npos) << command.name;
      EXPECT_NE(ran.out.find(command.help), std::string::npos) << command.name;
    }
  }
}

TEST(Commands, EachCommandHasHelpOfItsOwn) {
  for (const Command& command : all_commands()) {
    const Ran asked = run_with({command.name, "--help"}, all_commands());
    EXPECT_EQ(asked.code, 0) << asked.err;
    EXPECT_NE(asked.out.find("usage: maxtext " + command.name), std::string::npos);
    EXPECT_EQ(run_with({"help", command.name}, all_commands()).out, asked.out);
  }
}

TEST(Commands, VersionIsOneLine) {
  const Ran ran = run_with({"--version"}, all_commands());
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.out, "maxtext " MT_VERSION "\n");
}

TEST(Commands, NoCommandAndUnknownCommands) {
  const Ran none = run_with({}, all_commands());
  EXPECT_EQ(none.code, 2);
  EXPECT_EQ(none.err, "maxtext: error: which command? maxtext --help lists them\n");
  const Ran near = run_with({"docter"}, all_commands());
  EXPECT_EQ(near.code, 2);
  EXPECT_EQ(
      near.err,
      "maxtext: error: there is no command 'docter' (maxtext --help lists them). Did you mean "
      "'doctor'?\n");
  const Ran far = run_with({"xyzzy"}, all_commands());
  EXPECT_EQ(far.code, 2);
  EXPECT_EQ(far.err, "maxtext: error: there is no command 'xyzzy' (maxtext --help lists them).\n");
}

TEST(Commands, PassesTheOtherWordsAndTheExitCode) {
  std::vector<std::string> seen;
  const std::vector<Command> commands = {{"go", "x", [&](const std::vector<std::string>& args) {
                                            seen = args;
                                            return 7;
                                          }}};
  EXPECT_EQ(run_with({"go", "a.yml", "steps=1"}, commands).code, 7);
  EXPECT_EQ(seen, (std::vector<std::string>{"a.yml", "steps=1"}));
}

TEST(Commands, AnErrorIsOneLineWithTheCodeOfItsKind) {
  const std::vector<std::pair<ErrorKind, int>> codes = {
      {ErrorKind::kConfig, 2}, {ErrorKind::kIo, 3},     {ErrorKind::kDevice, 4},
      {ErrorKind::kLimit, 5},  {ErrorKind::kShape, 70}, {ErrorKind::kCancelled, 130}};
  for (const auto& [kind, code] : codes) {
    const Ran ran = run_throwing([kind = kind] { throw Error(kind, "a.gguf: cut\nshort\n"); });
    EXPECT_EQ(ran.code, code);
    EXPECT_EQ(ran.err, "maxtext: error: a.gguf: cut short\n");
    EXPECT_EQ(ran.out, "");
  }
}

TEST(Commands, OtherExceptionsAreCaughtToo) {
  const Ran memory = run_throwing([] { throw std::bad_alloc(); });
  EXPECT_EQ(memory.code, 5);
  EXPECT_TRUE(memory.err.starts_with("maxtext: error: out of memory")) << memory.err;
  const Ran bug = run_throwing([] { throw std::logic_error("oops"); });
  EXPECT_EQ(bug.code, 70);
  EXPECT_EQ(bug.err, "maxtext: error: internal: oops\n");
}

TEST(Machine, ReadsCpuinfo) {
  const Processor processor = parse_cpuinfo(
      "processor\t: 0\nmodel name\t: Some CPU @ 2.80GHz\nvmx flags\t: x\nflags\t\t: fpu avx2 fma\n"
      "\nprocessor\t: 1\nmodel name\t: Other\nflags\t\t: avx512f\n");
  EXPECT_EQ(processor.name, "Some CPU @ 2.80GHz");
  EXPECT_TRUE(processor.has("avx2"));
  EXPECT_FALSE(processor.has("avx"));
  EXPECT_FALSE(processor.has("avx512f"));
  EXPECT_EQ(describe_features(processor), "AVX2, FMA");
}

TEST(Machine, CpuinfoWithoutTheLines) {
  const Processor processor = parse_cpuinfo("flags\nmodel name");
  EXPECT_EQ(processor.name, "unknown");
  EXPECT_EQ(describe_features(processor), "no AVX2 or later (slow)");
}

TEST(Machine, ThisOneHasACore) { EXPECT_GE(this_processor().cores, 1); }

}  // namespace
}  // namespace mt::commands
