#pragma once

#include <string>
#include <vector>

namespace mt::commands {

// maxtext hlo-diff A B [options] [key=value ...]: two programs compared op by op. Exit code 1 if
// they differ.
int hlo_diff(const std::vector<std::string>& args);

}  // namespace mt::commands
