// The program's commands: one row a command in commands.cc; each is a thin main over the rooms.
#pragma once

namespace mt::commands {

// Runs `maxtext COMMAND ...`; returns the exit code. Catches every Error: one line on stderr.
int run(int argc, char** argv);

}  // namespace mt::commands
