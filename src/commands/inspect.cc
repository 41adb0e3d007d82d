#include "commands/inspect.h"

#include <fmt/core.h>

#include "base/error.h"
#include "base/file.h"
#include "commands/options.h"
#include "config/config.h"
#include "prove/inspect.h"

namespace mt::commands {
namespace {

constexpr const char* kHelp = R"(usage: maxtext inspect [CONFIG.yml] [options] key=value ...

Shows the module tree of a configuration: every module with its type, every variable with shape, logical axes,
sharding and what each device holds of it. Nothing is allocated and no plugin is opened.
  --depth N     only modules down to depth N, what is below them added up
  --json        print JSON instead, with the optimizer's state
  --html FILE   write a page that needs no other file

)";

}  // namespace

int inspect(const std::vector<std::string>& args) {
  Options options(args, {"--json"}, {"--html", "--depth"});
  if (options.help()) {
    fmt::print("{}{}", kHelp, config::help("Model"));
    return 0;
  }
  const int64_t depth = options.integer("--depth", 0);
  const auto config = config::Config::load(options.words(), config::process_environment());
  const prove::Inspection inspection = prove::inspect(config);
  if (const std::string* file = options.value("--html")) {
    write_file(*file, prove::to_html(inspection));
    if (!options.has("--json")) fmt::print("wrote {}\n", *file);
  } else if (!options.has("--json")) {
    fmt::print("{}", prove::to_text(inspection, depth));
  }
  if (options.has("--json")) fmt::print("{}\n", prove::to_json(inspection).dump(2));
  return 0;
}

}  // namespace mt::commands
