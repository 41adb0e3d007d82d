// Broken tokenizer files: each must give one clear line.
#include "data/sentencepiece_model.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "data/test_models.h"
#include "data/wire.h"

namespace mt::data {
namespace {

std::string refusal(const std::string& bytes) {
  try {
    Tokenizer::from_bytes(bytes, "t.model");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kIo);
    std::string text = e.what();
    const std::string start = "t.model: not a usable SentencePiece model: ";
    EXPECT_EQ(text.substr(0, start.size()), start);
    EXPECT_EQ(text.find('\n'), std::string::npos);
    EXPECT_LT(text.size(), 300U);
    return text.substr(start.size());
  }
  return "accepted";
}

std::string refusal(const std::function<void(ModelSpec&)>& change) {
  ModelSpec spec = tiny_spec();
  change(spec);
  return refusal(write_model(spec));
}

// Piece 270 with another text.
std::string with_piece(std::string text) {
  ModelSpec spec = tiny_spec();
  spec.pieces[270].text = std::move(text);
  return write_model(spec);
}

std::string tiny() { return write_model(tiny_spec()); }

TEST(SentencePieceModel, BadPieces) {
  EXPECT_EQ(refusal(tiny()), "accepted");
  EXPECT_EQ(refusal(with_piece(std::string(200 << 10, 'x'))),
            "piece 270 is 204800 bytes long; at most 4096");
  EXPECT_EQ(refusal(with_piece("a")), "pieces 261 and 270 are equal");
  EXPECT_EQ(refusal(with_piece("")), "piece 270 is empty");
  EXPECT_EQ(refusal(with_piece(std::string("a\0b", 3))), "piece 270 has a NUL in it");
  EXPECT_EQ(refusal(with_piece("\xC3")), "piece 270 is not valid UTF-8");
  EXPECT_EQ(refusal([](ModelSpec& s) { s.pieces[3].type = PieceType::kNormal; }),
            "no piece is 'unknown' (<unk>)");
  EXPECT_EQ(refusal([](ModelSpec& s) { s.pieces[270].type = PieceType::kUnknown; }),
            "pieces 3 and 270 are both 'unknown'");
  EXPECT_EQ(refusal([](ModelSpec& s) { s.pieces[270].type = static_cast<PieceType>(7); }),
            "piece 270 has the unknown type 7");
  EXPECT_EQ(refusal([](ModelSpec& s) { s.pieces[270].type = PieceType::kByte; }),
            "byte piece 270 is not <0x00> to <0xFF>");
  EXPECT_EQ(refusal([](ModelSpec& s) { s.pieces[6].type = PieceType::kNormal; }),
            "byte_fallback without the piece <0x01>");
  EXPECT_EQ(
      refusal([](ModelSpec& s) { s.pieces[270].score = std::numeric_limits<float>::quiet_NaN(); }),
      "piece 270 has the score nan");
}

TEST(SentencePieceModel, BadWireFormat) {
  const std::string end = fmt::format("at byte {}", tiny().size());
  EXPECT_EQ(refusal(tiny() + "\x0A" + std::string(10, '\x80') + "\x01"),
            fmt::format("a number (varint) of more than 10 bytes at byte {}", tiny().size() + 1));
  EXPECT_EQ(
      refusal(tiny() + "\x0A\x7F"
                       "abc"),
      fmt::format("a field of 127 bytes at byte {}, where only 3 are left", tiny().size() + 2));
  EXPECT_EQ(refusal(tiny() + "\x0B"), "unsupported wire type 3 " + end);
  EXPECT_EQ(refusal(tiny() + std::string("\x02\x00", 2)), "bad field number 0 " + end);
  EXPECT_EQ(refusal(tiny() + "\x0A\x80"),
            fmt::format("the file ends inside a number at byte {}", tiny().size() + 1));
  EXPECT_EQ(refusal(std::string("")), "no pieces in it");
  EXPECT_EQ(refusal(tiny() + std::string("\x08\x00", 2)), "a piece has wire type 0");
}

// Cut anywhere: either refused in one line or (where whole trailing messages are gone) accepted.
TEST(SentencePieceModel, EveryTruncation) {
  const std::string whole = tiny();
  for (size_t size = 0; size < whole.size(); size += 7) refusal(whole.substr(0, size));
}

std::string with_chars_map(const std::string& map) {
  std::string message;
  put_bytes_field(message, 2, map);
  std::string bytes = tiny();
  put_bytes_field(bytes, 3, message);
  return bytes;
}

std::string little_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(value >> shift));
  return bytes;
}

TEST(SentencePieceModel, NormaliserTrie) {
  std::string units(1024, '\0');
  EXPECT_EQ(refusal(with_chars_map(little_endian(1024) + units + std::string(1, '\0'))),
            "accepted");
  EXPECT_EQ(refusal(with_chars_map(little_endian(4096) + units + std::string(1, '\0'))),
            "the normalizer's trie says 4096 bytes in a map of 1029");
  EXPECT_EQ(refusal(with_chars_map("abc")), "the normalizer's character map has 3 bytes");
  EXPECT_EQ(refusal(with_chars_map(little_endian(1024) + units + "x")),
            "the normalizer's replacements don't end in NUL");
  std::string far = units;
  far.replace(0, 4, little_endian(0x7fffffffU & ~0x200U));
  EXPECT_EQ(refusal(with_chars_map(little_endian(1024) + far + std::string(1, '\0'))),
            "trie unit 0: offset out of range");
  far.replace(0, 4, little_endian(0x80000001U));
  EXPECT_EQ(refusal(with_chars_map(little_endian(1024) + far + std::string(1, '\0'))),
            "trie unit 0: value out of range");
}

TEST(SentencePieceModel, WhatItTells) {
  const ModelFacts facts = check_model(read_file(deps_file("tokenizer.gemma3")), "gemma");
  EXPECT_EQ(facts.types.size(), 262144U);
  EXPECT_TRUE(facts.lines_are_independent);
  EXPECT_FALSE(facts.drops_first_space);
  EXPECT_EQ(facts.types[105], PieceType::kUserDefined);
  EXPECT_FALSE(check_model(with_piece("a\nb"), "t").lines_are_independent);
}

TEST(SentencePieceModel, FileMistakes) {
  EXPECT_THROW(Tokenizer::from_file("/nonexistent/tokenizer.model"), Error);
  EXPECT_THROW(Tokenizer::from_file("/tmp"), Error);
}

}  // namespace
}  // namespace mt::data
