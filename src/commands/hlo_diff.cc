#include "commands/hlo_diff.h"

#include <fmt/core.h>

#include "base/error.h"
#include "base/file.h"
#include "base/visible.h"
#include "commands/options.h"
#include "prove/program_diff.h"
#include "prove/programs.h"
#include "prove/side.h"

namespace mt::commands {
namespace {

constexpr const char* kHelp = R"(usage: maxtext hlo-diff A B [options] [CONFIG.yml] [key=value ...]

Compares two programs operation by operation, names, ids and metadata apart: equal, or where the first difference is,
with the module and the source line that made each operation. The exit code is 1 where they differ.
A and B are files (StableHLO as dump_hlo writes it, or XLA's HLO text) or configurations: a .yml file, key=value words
in one argument ("scan_layers=false dtype=float32"), or "" for what the further words say. Those go for both sides.
  --program NAME   of a configuration: train (the step), gradients, logits, prefill or generate; default train
  --optimized      what the compiler makes of it, instead of StableHLO
  --json           print JSON

    maxtext hlo-diff "" "attention=flash" model_name=gemma3-270m per_device_batch_size=1 max_target_length=512
)";

prove::ProgramText program(const std::string& side, const std::vector<std::string>& shared,
                           const Options& options) {
  if (!prove::is_configuration(side)) return prove::read_program(read_file(side), side);
  const std::string* name = options.value("--program");
  const auto config = prove::load_side(side, shared);
  return prove::program_of(
      config, name == nullptr ? "train" : *name,
      options.has("--optimized") ? prove::Stage::kOptimized : prove::Stage::kStableHlo,
      side.find_first_not_of(' ') == std::string::npos ? "(as given)" : side);
}

}  // namespace

int hlo_diff(const std::vector<std::string>& args) {
  const Options options(args, {"--optimized", "--json"}, {"--program"});
  if (options.help()) {
    fmt::print("{}", kHelp);
    return 0;
  }
  const std::vector<std::string>& words = options.words();
  if (words.size() < 2) {
    throw fail(ErrorKind::kConfig, "hlo-diff: expected two programs, A and B (--help says how)");
  }
  const std::vector<std::string> shared(words.begin() + 2, words.end());
  const prove::ProgramText a = program(words[0], shared, options);
  const prove::ProgramText b = program(words[1], shared, options);
  const prove::ProgramDiff diff = prove::compare(a, b);
  if (options.has("--json")) {
    fmt::print("{}\n", prove::to_json(diff).dump(2));
  } else {
    fmt::print("{}", visible(prove::to_text(diff)));
  }
  return diff.equal ? 0 : 1;
}

}  // namespace mt::commands
