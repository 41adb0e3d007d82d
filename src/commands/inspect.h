#pragma once

#include <string>
#include <vector>

namespace mt::commands {

// maxtext inspect [CONFIG.yml] [--json] [--html FILE] [--depth N] [key=value ...]: the module tree.
int inspect(const std::vector<std::string>& args);

}  // namespace mt::commands
