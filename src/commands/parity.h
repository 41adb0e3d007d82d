#pragma once

#include <string>
#include <vector>

namespace mt::commands {

// maxtext parity reference=FOLDER [key=value ...]: this program against a reference run, as a
// table. Without keys that choose a layout: every layout of the default list. Exit code 1 if a row
// fails.
int parity(const std::vector<std::string>& args);

}  // namespace mt::commands
