#include "commands/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <utility>

namespace mt::commands {
namespace {

// /proc/cpuinfo's word and ours.
constexpr std::array<std::pair<const char*, const char*>, 6> kFeatures = {{
    {"avx2", "AVX2"},
    {"fma", "FMA"},
    {"avx512f", "AVX-512"},
    {"avx512_bf16", "bfloat16 (AVX-512)"},
    {"avx512_vnni", "VNNI"},
    {"amx_bf16", "AMX bfloat16"},
}};

// The value of the first "key : value" line.
std::string_view value_of(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string_view::npos) continue;
    if (line.find_first_not_of(" \t", key.size()) != colon) continue;  // a longer key
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string_view::npos ? std::string_view() : line.substr(start);
  }
  return {};
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

bool Processor::has(std::string_view flag) const {
  return std::find(flags.begin(), flags.end(), flag) != flags.end();
}

Processor parse_cpuinfo(std::string_view text) {
  Processor processor;
  processor.name = value_of(text, "model name");
  if (processor.name.empty()) processor.name = "unknown";
  std::istringstream words{std::string(value_of(text, "flags"))};
  for (std::string word; words >> word;) processor.flags.push_back(word);
  return processor;
}

Processor this_processor() {
  std::ostringstream text;
  text << std::ifstream("/proc/cpuinfo").rdbuf();
  Processor processor = parse_cpuinfo(text.str());
  processor.cores = usable_cores();
  return processor;
}

std::string describe_features(const Processor& processor) {
  std::vector<std::string> there;
  for (const auto& [flag, words] : kFeatures) {
    if (processor.has(flag)) there.emplace_back(words);
  }
  return there.empty() ? "no AVX2 or later (slow)" : fmt::format("{}", fmt::join(there, ", "));
}

}  // namespace mt::commands
