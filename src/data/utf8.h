// UTF-8 validity: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace mt::data {

enum class Utf8Char { kValid, kIncomplete, kInvalid };

struct Utf8Step {
  Utf8Char kind = Utf8Char::kInvalid;
  size_t length = 1;  // bytes of the character if valid
};

// Looks at the first character of non-empty bytes. kIncomplete: all bytes there are a proper
// beginning of a character that needs more.
Utf8Step utf8_step(std::string_view bytes);

// Offset of the first byte that doesn't belong to a valid character, if there is one.
std::optional<size_t> first_invalid_utf8(std::string_view bytes);

// Moves complete characters from the front of `held` to the result; a byte that can't be part of
// one becomes U+FFFD. An incomplete character at the end stays in `held`, or becomes U+FFFDs when
// `final`.
std::string take_valid_utf8(std::string& held, bool final);

}  // namespace mt::data
