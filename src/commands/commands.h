// The program's commands: one row a command in commands.cc; each is a thin main over the rooms.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace mt::commands {

struct Command {
  std::string name;
  std::string help;  // one line
  // Gets the words after the command's name; returns the exit code; may throw Error.
  std::function<int(const std::vector<std::string>& args)> run;
};

std::span<const Command> all_commands();

// Runs `maxtext COMMAND ...`; returns the exit code. Catches every exception: one line on stderr,
// "maxtext: error: ...".
int run(int argc, char** argv);
// The same with the words after "maxtext" and a table of one's own.
int run(const std::vector<std::string>& args, std::span<const Command> commands);

// 2 config, 3 io, 4 device, 5 limit, 70 shape, 130 cancelled.
int exit_code(ErrorKind kind);

}  // namespace mt::commands
