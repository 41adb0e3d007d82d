// Where a long text may be cut into parts.
#pragma once

#include <cstddef>
#include <string_view>

namespace mt::data {

// Length of the first part of `text`: all of it if it has at most `usual` bytes; else up to the
// last end of a run of newlines within `usual`, or within `longest`, or all of it if it is no
// longer than that; else `longest` less what belongs to a cut character. `text` may be the
// beginning of a longer text if it has more than `longest` bytes. usual >= 1, longest >= 4.
size_t part_length(std::string_view text, size_t usual, size_t longest);

inline constexpr size_t kLongestPart = size_t{1} << 20;

}  // namespace mt::data
