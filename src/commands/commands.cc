#include "commands/commands.h"

#include <fmt/core.h>

namespace mt::commands {

int run(int argc, char**) {
  fmt::print("maxtext: {} arguments\n", argc - 1);
  return 0;
}

}  // namespace mt::commands
