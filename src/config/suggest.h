// "did you mean": the nearest of some names.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace mt::config {

// The name of the smallest edit distance (letter case ignored) if it is near enough to be a slip of
// the keyboard, else the shortest name that contains `word` as a part, else "".
std::string nearest(std::string_view word, std::span<const std::string_view> names);

// " Did you mean 'NAME'?" or "".
std::string did_you_mean(std::string_view word, std::span<const std::string_view> names);

}  // namespace mt::config
