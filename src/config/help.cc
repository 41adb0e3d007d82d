#include <fmt/format.h>

#include <algorithm>
#include <span>
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

std::string entry(const Key& key) {
  return fmt::format("  {}={}\n      {}{}\n", key.name, shown_default(key), key.help,
                     values_text(key));
}

// What a first run of decode needs, in the order in which a user asks for it.
constexpr std::string_view kDecodeFirst[] = {"model_name",
                                             "load_parameters_path",
                                             "tokenizer_path",
                                             "prompt",
                                             "max_prefill_predict_length",
                                             "max_target_length",
                                             "decode_sampling_strategy",
                                             "decode_sampling_temperature",
                                             "decode_sampling_top_k",
                                             "decode_sampling_nucleus_p",
                                             "decode_sampling_seed",
                                             "quantization"};

}  // namespace

std::string help(std::string_view first) {
  std::string out =
      "Keys are set as key=value after the configuration file, or as M_KEY in the environment.\n";
  std::span<const std::string_view> needed;
  if (first == "Decoding") needed = kDecodeFirst;
  if (!needed.empty()) out += "\nNeeded first:\n";
  for (const std::string_view name : needed) {
    out += entry(*all_keys()[static_cast<size_t>(find_key(name))]);
  }
  std::vector<Group> ordered(groups().begin(), groups().end());
  std::stable_partition(ordered.begin(), ordered.end(),
                        [&](const Group& group) { return group.title == first; });
  for (const Group& group : ordered) {
    out += fmt::format("\n{}:\n", group.title);
    for (const Key& key : group.keys) {
      if (std::find(needed.begin(), needed.end(), key.name) == needed.end()) out += entry(key);
    }
  }
  return out;
}

}  // namespace mt::config
