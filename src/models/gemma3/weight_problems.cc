#include "models/gemma3/weight_problems.h"

#include <algorithm>

#include "base/error.h"

namespace mt::models::gemma3 {
namespace {

constexpr size_t kMostNamed = 20;

void append(std::string& text, std::string_view what, const std::vector<std::string>& items) {
  if (items.empty()) return;
  text += fmt::format("; {} {}: ", items.size(), what);
  for (size_t i = 0; i < std::min(items.size(), kMostNamed); ++i) {
    if (i > 0) text += ", ";
    text += items[i].substr(0, 300);
  }
  if (items.size() > kMostNamed) text += fmt::format(", and {} more", items.size() - kMostNamed);
}

}  // namespace

void WeightProblems::twice(std::string_view first, std::string_view second) {
  twice_.push_back(fmt::format("{} and {}", first, second));
}

void WeightProblems::shape(std::string_view name, const Shape& expected, const Shape& found) {
  shape_.push_back(
      fmt::format("{} expected {} found {}", name, to_string(expected), to_string(found)));
}

void WeightProblems::throw_if_any(std::string_view path) const {
  std::string text;
  append(text, "missing", missing_);
  append(text, "there twice", twice_);
  append(text, "unexpected", unexpected_);
  append(text, "of another shape", shape_);
  append(text, "wrong otherwise", other_);
  if (text.empty()) return;
  throw fail(ErrorKind::kIo, "{}: the weights don't fit the model: {}", path, text.substr(2));
}

}  // namespace mt::models::gemma3
