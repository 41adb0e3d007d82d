// Text from files and command lines, made safe to show: a terminal obeys control characters, and a
// NUL ends a message early.
#pragma once

#include <string>
#include <string_view>

namespace mt {

// Control characters, but for newline and tab, as \x1b and the like; the rest as it stands.
std::string visible(std::string_view text);

// The same in one line: newline, tab and backslash as \n, \t and \\.
std::string visible_in_line(std::string_view text);

}  // namespace mt
