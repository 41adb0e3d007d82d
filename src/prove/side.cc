#include "prove/side.h"

#include <algorithm>
#include <sstream>

namespace mt::prove {
namespace {

bool is_yaml(const std::string& word) {
  return word.find('=') == std::string::npos && (word.ends_with(".yml") || word.ends_with(".yaml"));
}

// What only one word may set: a key, or the file.
std::string slot_of(const std::string& word) {
  return is_yaml(word) ? ".yml" : word.substr(0, word.find('='));
}

}  // namespace

std::vector<std::string> words_of_side(const std::string& side,
                                       const std::vector<std::string>& shared) {
  std::vector<std::string> own, out;
  std::istringstream words(side);
  for (std::string word; words >> word;) own.push_back(word);
  for (const std::string& word : shared) {
    const bool replaced = std::any_of(
        own.begin(), own.end(), [&](const std::string& o) { return slot_of(o) == slot_of(word); });
    if (!replaced) out.push_back(word);
  }
  out.insert(out.end(), own.begin(), own.end());
  // The file, if there is one, comes first.
  std::stable_partition(out.begin(), out.end(), is_yaml);
  return out;
}

config::Config load_side(const std::string& side, const std::vector<std::string>& shared) {
  return config::Config::load(words_of_side(side, shared), config::process_environment());
}

bool is_configuration(const std::string& side) {
  return side.find_first_not_of(' ') == std::string::npos || side.find('=') != std::string::npos ||
         side.find(".yml") != std::string::npos || side.find(".yaml") != std::string::npos;
}

}  // namespace mt::prove
