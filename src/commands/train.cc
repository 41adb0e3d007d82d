#include "commands/train.h"

#include <fmt/core.h>

#include "base/error.h"
#include "config/config.h"
#include "models/gemma3/session.h"
#include "train/trainer.h"

namespace mt::commands {

int train(const std::vector<std::string>& args) {
  for (const std::string& word : args) {
    if (word != "--help" && word != "-h") continue;
    fmt::print("usage: maxtext train [CONFIG.yml] key=value ...\n\n{}", config::help());
    return 0;
  }
  const auto config = config::Config::load(args, config::process_environment());
  models::gemma3::refuse_quantization(config);
  if (!config.text("compile_topology").empty()) {
    throw fail(
        ErrorKind::kConfig,
        "compile_topology={}: train runs on the devices that are here; maxtext plan compiles "
        "for others",
        config.text("compile_topology"));
  }
  const mt::train::RunResult result = mt::train::train(config);
  return result.end == mt::train::RunEnd::kStopped ? 128 + result.signal_number : 0;
}

}  // namespace mt::commands
