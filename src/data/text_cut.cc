#include "data/text_cut.h"

#include <cstdint>

namespace mt::data {
namespace {

// Largest cut <= limit with a newline before it and none after it; 0 if there is none.
size_t line_cut(std::string_view text, size_t limit) {
  size_t cut = limit;
  while (cut > 0 && !(text[cut - 1] == '\n' && text[cut] != '\n')) --cut;
  return cut;
}

bool continues_character(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

}  // namespace

size_t part_length(std::string_view text, size_t usual, size_t longest) {
  if (text.size() <= usual) return text.size();
  if (const size_t cut = line_cut(text, usual); cut > 0) return cut;
  if (text.size() <= longest) {
    const size_t cut = line_cut(text, text.size() - 1);
    return cut > 0 ? cut : text.size();
  }
  if (const size_t cut = line_cut(text, longest); cut > 0) return cut;
  size_t cut = longest;
  for (int back = 0; back < 3 && continues_character(text[cut]); ++back) --cut;
  return cut;
}

}  // namespace mt::data
