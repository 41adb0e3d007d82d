#include "commands/commands.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <new>
#include <system_error>

#include "base/log.h"
#include "base/signals.h"
#include "commands/decode.h"
#include "commands/doctor.h"
#include "commands/hlo_diff.h"
#include "commands/inspect.h"
#include "commands/parity.h"
#include "commands/plan.h"
#include "commands/serve.h"
#include "commands/train.h"
#include "config/suggest.h"

namespace mt::commands {
namespace {

constexpr int kOwnBug = 70;  // EX_SOFTWARE

constexpr const char* kNoOutput = "standard output: can't write (closed pipe or full disk)";

// A broken pipe or a full disk shows only when the buffer is written out.
int finish(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  throw fail(ErrorKind::kIo, "{}", kNoOutput);
}

int print_help(std::span<const Command> commands) {
  fmt::print(
      "maxtext {}: trains, decodes and checks Gemma 3 through XLA\n\n"
      "usage: maxtext COMMAND [CONFIG.yml] [key=value ...]\n\ncommands:\n",
      MT_VERSION);
  for (const Command& command : commands) fmt::print("  {:<10} {}\n", command.name, command.help);
  fmt::print(
      "\nmaxtext COMMAND --help tells more about one; maxtext --version prints the version.\n");
  return 0;
}

const Command& find_command(const std::string& name, std::span<const Command> commands) {
  std::vector<std::string_view> names = {"help"};
  for (const Command& command : commands) {
    if (command.name == name) return command;
    names.push_back(command.name);
  }
  throw fail(ErrorKind::kConfig, "there is no command '{}' (maxtext --help lists them).{}", name,
             config::did_you_mean(name, names));
}

int dispatch(const std::vector<std::string>& args, std::span<const Command> commands) {
  if (args.empty()) {
    throw fail(ErrorKind::kConfig, "which command? maxtext --help lists them");
  }
  const std::string& first = args.front();
  if (first == "--version") {
    fmt::print("maxtext {}\n", MT_VERSION);
    return 0;
  }
  if (first == "--help" || first == "-h" || (first == "help" && args.size() == 1)) {
    return print_help(commands);
  }
  if (first == "help") return find_command(args[1], commands).run({"--help"});
  return find_command(first, commands).run({args.begin() + 1, args.end()});
}

void print_error(std::string message) {
  std::fflush(stdout);
  error_text(std::move(message));
}

}  // namespace

std::span<const Command> all_commands() {
  static const std::array commands = {
      Command{"decode", "continue a prompt with Gemma 3", decode},
      Command{"doctor", "what this machine has and lacks for training, and how to get it", doctor},
      Command{"hlo-diff", "two programs compared operation by operation", hlo_diff},
      Command{"inspect", "the module tree: parameters, axes, shardings, bytes on each device",
              inspect},
      Command{"parity", "this program's numbers against a reference run of MaxText", parity},
      Command{"plan", "what a run needs of a machine that may not be here; compiles only", plan},
      Command{"serve", "answer requests over HTTP in the form of OpenAI's API", serve},
      Command{"train", "train Gemma 3 by a configuration", train},
  };
  return commands;
}

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kConfig: return 2;
    case ErrorKind::kIo: return 3;
    case ErrorKind::kDevice: return 4;
    case ErrorKind::kLimit: return 5;
    case ErrorKind::kShape: return kOwnBug;
    case ErrorKind::kCancelled: return 130;
  }
  return kOwnBug;
}

int run(const std::vector<std::string>& args, std::span<const Command> commands) {
  try {
    return finish(dispatch(args, commands));
  } catch (const Error& error) {
    print_error(error.what());
    return exit_code(error.kind());
  } catch (const std::bad_alloc&) {
    print_error("out of memory: use a smaller model, batch or length, or a machine with more");
    return exit_code(ErrorKind::kLimit);
  } catch (const std::system_error& error) {
    // fmt::print's own words name no stream.
    print_error(std::ferror(stdout) != 0 ? kNoOutput : error.what());
    return exit_code(ErrorKind::kIo);
  } catch (const std::exception& error) {
    print_error(fmt::format("internal: {}", error.what()));
    return kOwnBug;
  }
}

int run(int argc, char** argv) {
  hold_standard_streams();
  ignore_file_size_signal();
  return run(std::vector<std::string>(argv + std::min(argc, 1), argv + argc), all_commands());
}

}  // namespace mt::commands
