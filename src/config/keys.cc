#include "config/keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "config/yaml_file.h"

namespace mt::config {
namespace {

// Names that an older MaxText uses for a key.
struct Alias {
  std::string_view old_name;
  std::string_view name;
};
constexpr Alias kAliases[] = {
    {"cosine_learning_rate_final_fraction", "learning_rate_final_fraction"}};

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t start = 0;;) {
    const size_t end = text.find('|', start);
    parts.push_back(text.substr(start, end - start));
    if (end == std::string_view::npos) return parts;
    start = end + 1;
  }
}

bool is_scalar(Type type) { return type != Type::kList && type != Type::kRules; }

bool matches(const Key& key, const Value& value, std::string_view choice) {
  if (!is_scalar(key.type)) return to_text(value) == choice;
  const std::optional<Value> parsed = parse_scalar(key.type, choice);
  return parsed && *parsed == value;
}

std::string shown(std::string_view choice) {
  return choice.empty() ? "\"\" (empty)" : std::string(choice);
}

void check_choice(const Key& key, const Value& value) {
  const std::vector<std::string_view> choices = split(key.choices);
  const auto is = [&](std::string_view choice) { return matches(key, value, choice); };
  if (std::any_of(choices.begin(), choices.end(), is)) return;
  std::vector<std::string> words;
  for (const std::string_view choice : choices) words.push_back(shown(choice));
  const std::string list = fmt::format("{}", fmt::join(words, ", "));
  const std::vector<std::string_view> later = split(key.later);
  if (key.later == "*" || (!key.later.empty() && std::any_of(later.begin(), later.end(), is))) {
    throw fail(ErrorKind::kConfig, "{}={} isn't supported yet by maxtext.cpp (what works: {})",
               key.name, to_text(value), list);
  }
  if (key.choices.find("bfloat16") != std::string_view::npos && is("float16")) {
    throw fail(ErrorKind::kConfig,
               "{}=float16 isn't supported: Gemma's activations leave its range; use bfloat16",
               key.name);
  }
  throw fail(ErrorKind::kConfig, "{}={}: not one of {}", key.name, to_text(value), list);
}

std::string range_text(const Range& range) {
  std::string text;
  if (range.low > -std::numeric_limits<double>::infinity()) {
    text = fmt::format("{} {}", range.open_low ? "more than" : "at least", range.low);
  }
  if (range.high < std::numeric_limits<double>::infinity()) {
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : " and ",
                    range.open_high ? "less than" : "at most", static_cast<int64_t>(range.high));
  }
  return text;
}

// Every number of the table meets float32 in the end, as a constant of a program or an input.
void check_float32(const Key& key, double number) {
  const double size = std::abs(number);
  constexpr double kLeast = std::numeric_limits<float>::min();
  constexpr double kMost = std::numeric_limits<float>::max();
  if (number == 0 || (size >= kLeast && size <= kMost)) return;
  throw fail(ErrorKind::kConfig, "{}={}: too {} for float32", key.name, to_text(number),
             size < kLeast ? "small" : "large");
}

void check_range(const Key& key, const Value& value) {
  double number = 0;
  if (const auto* i = std::get_if<int64_t>(&value)) {
    number = static_cast<double>(*i);
  } else if (const auto* d = std::get_if<double>(&value)) {
    number = *d;
    check_float32(key, number);
  } else {
    return;
  }
  const Range& range = key.range;
  const bool low = range.open_low ? number > range.low : number >= range.low;
  const bool high = range.open_high ? number < range.high : number <= range.high;
  if (low && high) return;
  throw fail(ErrorKind::kConfig, "{}={}: must be {}", key.name, to_text(value), range_text(range));
}

}  // namespace

const std::vector<const Key*>& all_keys() {
  static const std::vector<const Key*> keys = [] {
    std::vector<const Key*> all;
    for (const Group& group : groups()) {
      for (const Key& key : group.keys) all.push_back(&key);
    }
    return all;
  }();
  return keys;
}

const std::vector<std::string_view>& all_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for (const Key* key : all_keys()) all.push_back(key->name);
    return all;
  }();
  return names;
}

int find_key(std::string_view name) {
  for (const Alias& alias : kAliases) {
    if (alias.old_name == name) name = alias.name;
  }
  const auto& names = all_names();
  const auto it = std::find(names.begin(), names.end(), name);
  return it == names.end() ? -1 : static_cast<int>(it - names.begin());
}

Value default_value(const Key& key) {
  if (key.type == Type::kRules) return std::vector<sharding::AxisRule>{};
  if (key.type == Type::kList) return parse_yaml_word(Type::kList, key.value);
  const std::optional<Value> value = parse_scalar(key.type, key.value);
  MT_CHECK(value.has_value());
  return *value;
}

void check_value(const Key& key, const Value& value) {
  if (!key.choices.empty() || !key.later.empty()) check_choice(key, value);
  check_range(key, value);
}

}  // namespace mt::config
