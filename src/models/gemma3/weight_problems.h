// Everything wrong with a checkpoint, gathered into one message.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"

namespace mt::models::gemma3 {

class WeightProblems {
 public:
  void missing(std::string_view name) { missing_.emplace_back(name); }
  void twice(std::string_view first, std::string_view second);
  void unexpected(std::string_view name) { unexpected_.emplace_back(name); }
  void shape(std::string_view name, const Shape& expected, const Shape& found);
  void other(std::string text) { other_.push_back(std::move(text)); }

  // Throws kIo beginning with `path` if there is any; long lists are cut, with their count.
  void throw_if_any(std::string_view path) const;

 private:
  std::vector<std::string> missing_, twice_, unexpected_, shape_, other_;
};

}  // namespace mt::models::gemma3
