#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "config/config.h"
#include "config/keys.h"

namespace mt::config {
namespace {

std::string shown_default(const Key& key) {
  if (key.type == Type::kRules) return "[...]";
  return key.value.empty() ? "\"\"" : std::string(key.value);
}

// " One of a, b." for keys with a choice; keys with a single value that works say so.
std::string values_text(const Key& key) {
  if (key.choices.empty() && key.later.empty()) return "";
  if (key.choices.find('|') == std::string_view::npos) return " (No other value works yet.)";
  std::string words(key.choices);
  for (size_t at = 0; (at = words.find('|', at)) != std::string::npos; at += 2) {
    words.replace(at, 1, ", ");
  }
  return fmt::format(" One of: {}.", words.starts_with(",") ? "(empty)" + words : words);
}

}  // namespace

std::string help(std::string_view first) {
  std::string out =
      "Keys are set as key=value after the configuration file, or as M_KEY in the environment.\n";
  std::vector<Group> ordered(groups().begin(), groups().end());
  std::stable_partition(ordered.begin(), ordered.end(),
                        [&](const Group& group) { return group.title == first; });
  for (const Group& group : ordered) {
    out += fmt::format("\n{}:\n", group.title);
    for (const Key& key : group.keys) {
      out += fmt::format("  {}={}\n      {}{}\n", key.name, shown_default(key), key.help,
                         values_text(key));
    }
  }
  return out;
}

}  // namespace mt::config
