#pragma once

#include <string>
#include <vector>

namespace mt::commands {

// maxtext train [CONFIG.yml] key=value ...: exit code 0 when the run is done or its data has ended,
// 128 + n when signal n stopped it.
int train(const std::vector<std::string>& args);

}  // namespace mt::commands
