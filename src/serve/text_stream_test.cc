#include "serve/text_stream.h"

#include <gtest/gtest.h>

#include "data/test_models.h"
#include "data/utf8.h"

namespace mt::serve {
namespace {

using Strings = std::vector<std::string>;

const data::Tokenizer& tokenizer() {
  static const data::Tokenizer tiny = data::tiny_tokenizer();
  return tiny;
}

struct Shown {
  Strings pieces;
  std::string all;
  bool stopped = false;
};

// Every byte a token: stop strings and characters over as many tokens as they have bytes.
Shown show(const std::string& text, const Strings& stops) {
  TextStream stream(tokenizer(), stops);
  Shown out;
  const auto add = [&](const std::string& piece) {
    EXPECT_FALSE(data::first_invalid_utf8(piece)) << piece;
    out.all += piece;
    if (!piece.empty()) out.pieces.push_back(piece);
  };
  for (const char c : text) {
    if (!stream.stopped()) add(stream.push(5 + static_cast<unsigned char>(c)));
  }
  add(stream.finish());
  EXPECT_EQ(stream.shown(), out.all.size());
  out.stopped = stream.stopped();
  return out;
}

TEST(TextStream, AStopStringNeverShows) {
  struct Row {
    std::string text;
    Strings stops;
    std::string shown;
    bool stopped;
  };
  const std::vector<Row> rows{
      {" DEFGHIJ rest", {"DEFGHIJ"}, " ", true},
      {" DEFGHIJ", {"DEFX"}, " DEFGHIJ", false},
      {" DEFGHIJ", {"EFG"}, " D", true},
      {"abcd", {"cd", "b"}, "a", true},     // the later of the list comes first
      {"abcd", {"bc", "abcd"}, "a", true},  // complete first
      {"abcd", {"d", "bcd"}, "a", true},    // both complete: the longest
      {"aab", {"ab"}, "a", true},           // a beginning within a beginning
      {"ababac", {"abac"}, "ab", true},
      {"ab", {"abc"}, "ab", false},  // given back at the end
      {"x\xC3\xA9y", {"\xC3\xA9"}, "x", true},
      {"x\xC3\xA9y", {"\xC3\xAA"}, "x\xC3\xA9y", false},
      {"stop", {"stop"}, "", true},
      {"", {"stop"}, "", false},
  };
  for (const Row& row : rows) {
    const Shown shown = show(row.text, row.stops);
    EXPECT_EQ(shown.all, row.shown) << row.text;
    EXPECT_EQ(shown.stopped, row.stopped) << row.text;
  }
}

TEST(TextStream, HoldsBackNoMoreThanItMust) {
  EXPECT_EQ(show("abxcd", {"abc"}).pieces, (Strings{"abx", "c", "d"}));
  EXPECT_EQ(show("\xF0\x9F\x98\x80!", {}).pieces, (Strings{"\xF0\x9F\x98\x80", "!"}));
  EXPECT_EQ(show("a\xF0\x9F", {}).all, "a\uFFFD\uFFFD");
}

// U+FFFD of bytes cut off at the end may complete a stop string.
TEST(TextStream, TheEndIsTextToo) {
  const Shown shown = show("a\xC3", {"\uFFFD"});
  EXPECT_EQ(shown.all, "a");
  EXPECT_TRUE(shown.stopped);
}

TEST(TextStream, RowsWithoutAPieceAreShownAsUnknown) {
  TextStream stream(tokenizer(), {});
  EXPECT_EQ(stream.push(static_cast<int32_t>(tokenizer().vocab_size())), "\uFFFD");
}

}  // namespace
}  // namespace mt::serve
