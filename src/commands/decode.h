// maxtext decode [CONFIG.yml] key=value ...: the prompt, continued.
#pragma once

#include <string>
#include <vector>

namespace mt::commands {

int decode(const std::vector<std::string>& args);

}  // namespace mt::commands
