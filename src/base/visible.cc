#include "base/visible.h"

#include <fmt/format.h>

#include <iterator>

namespace mt {

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
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace mt
