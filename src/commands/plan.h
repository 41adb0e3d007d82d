#pragma once

#include <string>
#include <vector>

namespace mt::commands {

// maxtext plan: compiles the configuration's programs for a machine that may not be here, runs
// nothing, and says what they need.
int plan(const std::vector<std::string>& args);

}  // namespace mt::commands
