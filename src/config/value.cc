#include "config/value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace mt::config {
namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }

// Without Python's digit separators; nullopt if an underscore is not between two digits.
std::optional<std::string> without_separators(std::string_view word) {
  std::string out;
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] != '_') {
      out += word[i];
    } else if (i == 0 || i + 1 == word.size() || !digit(word[i - 1]) || !digit(word[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

template <typename T>
std::optional<T> parse_whole(std::string_view word) {
  std::optional<std::string> digits = without_separators(word);
  if (!digits) return std::nullopt;
  std::string_view rest = *digits;
  if (rest.size() > 1 && rest[0] == '+' && rest[1] != '-') rest.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc() || end != rest.data() + rest.size()) return std::nullopt;
  return value;
}

std::optional<Value> parse_flag(std::string_view word) {
  std::string lower(word);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower == "true") return true;
  if (lower == "false") return false;
  return std::nullopt;
}

std::string quoted_list(const std::vector<std::string>& items) {
  std::vector<std::string> quoted;
  for (const std::string& item : items) quoted.push_back(fmt::format("'{}'", item));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

struct Printer {
  std::string operator()(int64_t v) const { return fmt::format("{}", v); }
  std::string operator()(double v) const {
    std::string text = fmt::format("{}", v);
    if (text.find_first_of(".en") == std::string::npos) text += ".0";
    return text;
  }
  std::string operator()(bool v) const { return v ? "True" : "False"; }
  std::string operator()(const std::string& v) const { return v; }
  std::string operator()(const std::vector<std::string>& v) const { return quoted_list(v); }
  std::string operator()(const std::vector<sharding::AxisRule>& v) const {
    std::vector<std::string> rules;
    for (const sharding::AxisRule& rule : v) {
      rules.push_back(fmt::format("['{}', {}]", rule.logical, quoted_list(rule.mesh_axes)));
    }
    return fmt::format("[{}]", fmt::join(rules, ", "));
  }
};

}  // namespace

std::string_view expected(Type type) {
  static constexpr std::array<std::string_view, 6> kWords = {
      "an integer", "a finite number", "true or false",
      "a text",     "a list of texts", "a list of [logical axis, [mesh axes]]"};
  return kWords[static_cast<size_t>(type)];
}

std::optional<Value> parse_scalar(Type type, std::string_view word) {
  switch (type) {
    case Type::kInteger:
      if (const auto v = parse_whole<int64_t>(word)) return *v;
      return std::nullopt;
    case Type::kNumber:
      if (const auto v = parse_whole<double>(word); v && std::isfinite(*v)) return *v;
      return std::nullopt;
    case Type::kFlag: return parse_flag(word);
    case Type::kText: return std::string(word);
    case Type::kList:
    case Type::kRules: break;
  }
  MT_CHECK(false);
}

std::string to_text(const Value& value) { return std::visit(Printer{}, value); }

}  // namespace mt::config
