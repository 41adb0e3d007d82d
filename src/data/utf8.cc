#include "data/utf8.h"

#include <cstdint>

namespace mt::data {
namespace {

uint8_t byte_at(std::string_view bytes, size_t i) { return static_cast<uint8_t>(bytes[i]); }

// Length of the character by its first byte, and the range its second byte must be in: the range
// excludes overlong forms, surrogates and anything above U+10FFFF.
struct Lead {
  size_t length;
  uint8_t low;
  uint8_t high;
};

Lead lead(uint8_t first) {
  if (first < 0x80) return {1, 0, 0};
  if (first < 0xC2) return {0, 0, 0};
  if (first < 0xE0) return {2, 0x80, 0xBF};
  if (first == 0xE0) return {3, 0xA0, 0xBF};
  if (first == 0xED) return {3, 0x80, 0x9F};
  if (first < 0xF0) return {3, 0x80, 0xBF};
  if (first == 0xF0) return {4, 0x90, 0xBF};
  if (first < 0xF4) return {4, 0x80, 0xBF};
  if (first == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step utf8_step(std::string_view bytes) {
  const Lead first = lead(byte_at(bytes, 0));
  if (first.length == 0) return {Utf8Char::kInvalid, 1};
  for (size_t i = 1; i < first.length; ++i) {
    if (i == bytes.size()) return {Utf8Char::kIncomplete, bytes.size()};
    const uint8_t low = i == 1 ? first.low : uint8_t{0x80};
    const uint8_t high = i == 1 ? first.high : uint8_t{0xBF};
    if (byte_at(bytes, i) < low || byte_at(bytes, i) > high) return {Utf8Char::kInvalid, 1};
  }
  return {Utf8Char::kValid, first.length};
}

std::optional<size_t> first_invalid_utf8(std::string_view bytes) {
  size_t i = 0;
  while (i < bytes.size()) {
    if (byte_at(bytes, i) < 0x80) {
      ++i;
      continue;
    }
    const Utf8Step step = utf8_step(bytes.substr(i));
    if (step.kind != Utf8Char::kValid) return i;
    i += step.length;
  }
  return std::nullopt;
}

std::string take_valid_utf8(std::string& held, bool final) {
  std::string text;
  size_t i = 0;
  while (i < held.size()) {
    const std::string_view rest = std::string_view(held).substr(i);
    const Utf8Step step = utf8_step(rest);
    if (step.kind == Utf8Char::kIncomplete && !final) break;
    if (step.kind == Utf8Char::kValid) {
      text.append(rest.substr(0, step.length));
      i += step.length;
    } else {
      text += "\xEF\xBF\xBD";
      i += 1;
    }
  }
  held.erase(0, i);
  return text;
}

}  // namespace mt::data
