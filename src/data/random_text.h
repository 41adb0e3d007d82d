// For tests: random valid UTF-8, of the kinds of characters that tokenizers get wrong.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace mt::data {

inline void append_utf8(std::string& out, uint32_t c) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xC0 | (c >> 6)), put(0x80 | (c & 0x3F));
  if (c < 0x10000)
    return put(0xE0 | (c >> 12)), put(0x80 | ((c >> 6) & 0x3F)), put(0x80 | (c & 0x3F));
  put(0xF0 | (c >> 18)), put(0x80 | ((c >> 12) & 0x3F));
  put(0x80 | ((c >> 6) & 0x3F)), put(0x80 | (c & 0x3F));
}

// Up to `most` characters; never U+2581, the one character that doesn't come back.
inline std::string random_text(std::mt19937& random, uint32_t most) {
  static const char* const kWords[] = {
      " the", "\n",   "\n\n",  "  ",     "<b>",  "<start_of_turn>", "\t", " I",
      "ing",  "\r\n", "<bos>", "日本語", "🦙", "[multimodal]"};
  std::string text;
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (uint32_t count = below(most + 1); count > 0; --count) {
    uint32_t c = 0;
    switch (below(6)) {
      case 0: text += kWords[below(14)]; continue;
      case 1: c = below(0x80); break;
      case 2: c = 0x20 + below(0x5F); break;
      case 3: c = below(0x3000); break;
      case 4: c = below(0x10000); break;
      default: c = below(0x110000); break;
    }
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    append_utf8(text, surrogate || c == 0x2581 ? 'x' : c);
  }
  return text;
}

}  // namespace mt::data
