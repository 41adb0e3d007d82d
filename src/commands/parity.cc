#include "commands/parity.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/error.h"
#include "base/visible.h"
#include "train/parity.h"

namespace mt::commands {
namespace {

constexpr const char* kHelp = R"(usage: maxtext parity reference=FOLDER [key=value ...]

Compares logits, losses, gradients and AdamW steps with a reference run that MaxText made
(docs/PARITY.md says what the folder holds, tests/golden/maxtext/README.md how one is made). Without further keys it runs
scanned and unscanned layers, both kinds of attention, one device and three meshes of four; with
keys (scan_layers=, attention=, ici_fsdp_parallelism=, ...) it runs that one layout.
  all=true   print every row, not only the worst of each kind
)";

using Layout = std::vector<std::string>;

std::vector<Layout> default_layouts() {
  return {
      {"scan_layers=true", "attention=dot_product"},
      {"scan_layers=false", "attention=dot_product"},
      {"scan_layers=true", "attention=flash"},
      {"scan_layers=true", "attention=flash", "sa_block_q=8"},
      {"scan_layers=true", "attention=flash", "ici_fsdp_parallelism=4"},
      {"scan_layers=true", "attention=flash", "ici_fsdp_parallelism=2", "ici_tensor_parallelism=2"},
      {"scan_layers=false", "attention=flash", "ici_fsdp_parallelism=1", "ici_data_parallelism=4"},
  };
}

// "gradient decoder/..." -> "gradient"
std::string group(const std::string& what) { return what.substr(0, what.find(' ')); }

bool print_rows(const std::vector<train::ParityRow>& rows, bool all) {
  bool passed = true;
  std::vector<std::string> groups;
  for (const auto& row : rows) {
    passed = passed && row.passed();
    const std::string name = group(row.what);
    if (std::find(groups.begin(), groups.end(), name) == groups.end()) groups.push_back(name);
  }
  for (const std::string& name : groups) {
    const train::ParityRow* worst = nullptr;
    size_t count = 0, good = 0;
    for (const auto& row : rows) {
      if (group(row.what) != name) continue;
      ++count;
      good += row.passed() ? 1 : 0;
      if (all || !row.passed()) {
        fmt::print("    {:<4} {:<72} {:10.3g} (limit {:g})\n", row.passed() ? "ok" : "FAIL",
                   row.what, row.difference, row.limit);
      }
      if (worst == nullptr || !(row.difference / row.limit <= worst->difference / worst->limit))
        worst = &row;
    }
    fmt::print("  {:<9} {}/{} within {:g} {}; worst {:.3g} {}\n", name, good, count, worst->limit,
               worst->detail, worst->difference, worst->what);
  }
  return passed;
}

}  // namespace

int parity(const std::vector<std::string>& args) {
  std::string folder;
  bool all = false;
  Layout overrides;
  for (const std::string& word : args) {
    if (word == "--help" || word == "-h") {
      fmt::print("{}", kHelp);
      return 0;
    }
    if (word.starts_with("reference=")) {
      folder = word.substr(10);
    } else if (word == "all=true") {
      all = true;
    } else {
      overrides.push_back(word);
    }
  }
  if (folder.empty()) throw fail(ErrorKind::kConfig, "parity: reference=FOLDER is missing");
  const std::vector<Layout> layouts =
      overrides.empty() ? default_layouts() : std::vector<Layout>(1, overrides);
  bool passed = true;
  for (const Layout& layout : layouts) {
    const auto start = std::chrono::steady_clock::now();
    const auto rows = train::compare_with_reference(folder, layout);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    fmt::print("{} ({:.1f} s)\n", visible(fmt::format("{}", fmt::join(layout, " "))), seconds);
    passed = print_rows(rows, all) && passed;
    std::fflush(stdout);
  }
  fmt::print("{}\n", passed ? "parity: all within limits" : "parity: FAILED");
  return passed ? 0 : 1;
}

}  // namespace mt::commands
