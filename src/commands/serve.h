// `maxtext serve`: the model over HTTP, until a signal.
#pragma once

#include <string>
#include <vector>

namespace mt::commands {

int serve(const std::vector<std::string>& args);

}  // namespace mt::commands
