#include "base/visible.h"

#include <fmt/format.h>

#include <iterator>

namespace mt {
namespace {

// Bytes of the UTF-8 character of several bytes that the text begins with; 0 if it is none (RFC
// 3629: no overlong forms, no surrogates, up to U+10FFFF).
size_t character_size(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  const size_t size = first >= 0xc2 && first < 0xe0   ? 2
                      : first >= 0xe0 && first < 0xf0 ? 3
                      : first >= 0xf0 && first < 0xf5 ? 4
                                                      : 0;
  if (size == 0 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if (at(i) < 0x80 || at(i) >= 0xc0) return 0;
  }
  const unsigned char second = at(1);
  const bool bad = (first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0) ||
                   (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90);
  return bad ? 0 : size;
}

}  // namespace

std::string visible(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const unsigned char next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    // U+0080 to U+009F are control characters too: c2 80 to c2 9f in UTF-8.
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", next);
      ++i;
    } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", byte);
    } else if (byte < 0x80) {
      out += text[i];
    } else if (const size_t size = character_size(text.substr(i)); size > 0) {
      out += text.substr(i, size);
      i += size - 1;
    } else {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", byte);
    }
  }
  return out;
}

std::string visible_in_line(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const char escaped = c == '\n' ? 'n' : c == '\t' ? 't' : c == '\\' ? '\\' : '\0';
    if (escaped != '\0') out += '\\';
    out += escaped != '\0' ? escaped : c;
  }
  return visible(out);
}

}  // namespace mt
