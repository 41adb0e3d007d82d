#include "base/visible.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/log.h"

namespace mt {
namespace {

using std::string_literals::operator""s;

TEST(Visible, OnlyControlCharactersChange) {
  EXPECT_EQ(visible("a\tb\nc d ~ é 猫 \u00a0"), "a\tb\nc d ~ é 猫 \u00a0");
  EXPECT_EQ(visible("a\x1b[2Jb\r\a\x7f"s), "a\\x1b[2Jb\\x0d\\x07\\x7f");
  EXPECT_EQ(visible("cut\0here"s), "cut\\x00here");
  EXPECT_EQ(visible("csi\u009b2J"), "csi\\u009b2J");
  EXPECT_EQ(visible("\xc2"), "\\xc2");
}

TEST(Visible, InOneLine) {
  EXPECT_EQ(visible_in_line("a\n\tb\\n \x1b \u00e9"), "a\\n\\tb\\\\n \\x1b \u00e9");
}

TEST(Visible, AnErrorKeepsWhatStandsBehindANul) {
  EXPECT_STREQ(fail(ErrorKind::kIo, "{}: not a file", "a\0b"s).what(), "a\\x00b: not a file");
}

TEST(Visible, LogLinesShowControlCharacters) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  log_line("name {}", "a\x1b[2J");
  log_warning("{}", "b\x1b\0"s);
  error_text("two\nlines \x1b\n");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "name a\\x1b[2J\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: b\\x1b\\x00\nmaxtext: error: two lines \\x1b\n");
}

// Lone bytes of 0x80 and above steer 8-bit terminals (0x9b is CSI), and are no text anyway.
TEST(Visible, BytesThatAreNoCharacter) {
  EXPECT_EQ(visible("a\xff"
                    "b"),
            "a\\xffb");
  EXPECT_EQ(visible("\xc3("), "\\xc3(");
  EXPECT_EQ(visible("\x9b[2J"), "\\x9b[2J");
  EXPECT_EQ(visible("\xe2\x82"), "\\xe2\\x82");           // cut
  EXPECT_EQ(visible("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(visible("\xc0\x8a"), "\\xc0\\x8a");           // an overlong line feed
  EXPECT_EQ(visible("h\u00e9 \u20ac \U0001f600"), "h\u00e9 \u20ac \U0001f600");
}

}  // namespace
}  // namespace mt
