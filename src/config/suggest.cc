#include "config/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <vector>

namespace mt::config {
namespace {

constexpr size_t kLongestWord = 100;  // longer words are no slips

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

// Edits (insert, delete, replace; a swap of neighbours counts two).
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (lower(a[i]) == lower(b[j]) ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string_view> names) {
  while (word.starts_with('-')) word.remove_prefix(1);
  if (word.empty() || word.size() > kLongestWord) return "";
  const size_t allowed = word.size() < 4 ? 1 : std::clamp<size_t>(word.size() / 3, 2, 3);
  std::string_view best, container;
  size_t best_distance = allowed + 1;
  for (const std::string_view name : names) {
    const size_t d = distance(word, name);
    if (d < best_distance) {
      best_distance = d;
      best = name;
    }
    if (word.size() >= 4 && name.find(word) != std::string_view::npos &&
        (container.empty() || name.size() < container.size())) {
      container = name;
    }
  }
  return std::string(best.empty() ? container : best);
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> names) {
  const std::string name = nearest(word, names);
  return name.empty() ? "" : fmt::format(" Did you mean '{}'?", name);
}

}  // namespace mt::config
