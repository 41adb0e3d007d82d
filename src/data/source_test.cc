#include "data/source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/error.h"
#include "data/random_text.h"
#include "data/temp_folder.h"

namespace mt::data {
namespace {

using Texts = std::vector<std::string>;

// Whole documents, parts joined.
Texts read_all(Source& source) {
  Texts texts;
  Document document;
  bool open = false;
  while (source.next(document)) {
    EXPECT_EQ(document.first, !open) << document.where;
    if (document.first) texts.emplace_back();
    texts.back() += document.text;
    open = !document.last;
  }
  EXPECT_FALSE(open);
  EXPECT_FALSE(source.next(document));
  return texts;
}

Texts read_all(const TextSourceOptions& options) { return read_all(*open_text_source(options)); }

std::string error_of(const std::function<void()>& call, ErrorKind kind) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind);
    return e.what();
  }
  return "no error";
}

TEST(TextSource, PlainTextIsOneDocumentAFile) {
  const TempFolder folder;
  const std::string book = folder.write("book.txt", "one\n\ntwo\r\n");
  EXPECT_EQ(read_all({.paths = book}), (Texts{"one\n\ntwo\r\n"}));
  const std::string bom = folder.write("bom", "\xEF\xBB\xBFtext");
  EXPECT_EQ(read_all({.paths = bom}), (Texts{"text"}));
  EXPECT_EQ(read_all({.paths = folder.write("empty.txt", "")}), Texts{});
  EXPECT_EQ(read_all({.paths = folder.write("blank.txt", " \n\n")}), Texts{});
}

TEST(TextSource, SeparatorLines) {
  const TempFolder folder;
  const std::string fortunes =
      folder.write("fortunes", "%\nfirst\n%\n%\n\n%\r\n 50 %\n%%\n%x\n%\nlast, no newline");
  EXPECT_EQ(read_all({.paths = fortunes, .document_separator = "%"}),
            (Texts{"first\n", " 50 %\n%%\n%x\n", "last, no newline"}));
}

TEST(TextSource, JsonLines) {
  const TempFolder folder;
  const std::string file = folder.write(
      "a.jsonl",
      "{\"text\": \"one\\nline\"}\n\n  \n{\"id\": 7, \"text\": \"\"}\r\n{\"text\":\"z\\u0000\"}");
  EXPECT_EQ(read_all({.paths = file}), (Texts{"one\nline", "", std::string("z\0", 2)}));
  const std::string other = folder.write("b.json", "{\"content\": \"x\"}\n");
  EXPECT_EQ(read_all({.paths = other, .text_field = "content"}), Texts{"x"});
}

TEST(TextSource, JsonFaultsNameTheLine) {
  const TempFolder folder;
  const auto fault = [&](const std::string& line) {
    const std::string file = folder.write("bad.jsonl", "{\"text\": \"ok\"}\n\n" + line + "\n");
    const std::string message = error_of([&] { read_all({.paths = file}); }, ErrorKind::kIo);
    EXPECT_EQ(message.substr(0, file.size() + 4), file + ":3: ") << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message.size() > file.size() + 4 ? message.substr(file.size() + 4) : message;
  };
  EXPECT_EQ(fault("[1]"), "expected a JSON object");
  EXPECT_NE(fault("{\"txt\": 1}").find("text"), std::string::npos);
  EXPECT_NE(fault("{\"text\": 1}").find("string"), std::string::npos);
  EXPECT_FALSE(fault("{\"text\": \"cut").empty());
  EXPECT_FALSE(fault("{\"text\": \"\\ud800\"}").empty());
}

TEST(TextSource, InvalidUtf8NamesTheByte) {
  const TempFolder folder;
  const std::string text = folder.write("a.txt", "good\n\xC3\x28");
  EXPECT_EQ(error_of([&] { read_all({.paths = text}); }, ErrorKind::kIo),
            text + ": not valid UTF-8 at byte 5");
  const std::string lines = folder.write("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"\xFF\"}\n");
  EXPECT_EQ(error_of([&] { read_all({.paths = lines}); }, ErrorKind::kIo),
            lines + ": not valid UTF-8 at byte 24");
  std::string late(300000, 'x');
  late[200000] = '\x80';
  const std::string file = folder.write("late.txt", late);
  EXPECT_EQ(error_of([&] { read_all({.paths = file}); }, ErrorKind::kIo),
            file + ": not valid UTF-8 at byte 200000");
}

TEST(TextSource, PathsFoldersAndPatterns) {
  const TempFolder folder;
  const std::string b = folder.write("b.txt", "b");
  const std::string a = folder.write("a.txt", "a");
  const std::string c = folder.write("deep/c.jsonl", "");
  folder.write("not-text.bin", "\xFF");
  EXPECT_EQ(expand_paths(folder.path()), (Texts{a, b, c}));
  EXPECT_EQ(expand_paths(folder.path() + "/*.txt"), (Texts{a, b}));
  EXPECT_EQ(expand_paths(b + "," + folder.path() + "/[a].txt"), (Texts{b, a}));
  const auto mistake = [](const std::string& paths, ErrorKind kind) {
    return error_of([&] { expand_paths(paths); }, kind);
  };
  EXPECT_EQ(mistake("/no/such.txt", ErrorKind::kIo), "/no/such.txt: No such file or directory");
  EXPECT_EQ(mistake(folder.path() + "/*.csv", ErrorKind::kIo),
            folder.path() + "/*.csv: no file matches this pattern");
  EXPECT_EQ(mistake(a + ",", ErrorKind::kConfig),
            "an empty name in the list of text files '" + a + ",'");
  folder.write("none/x.bin", "");
  EXPECT_EQ(mistake(folder.path() + "/none", ErrorKind::kIo),
            folder.path() + "/none: no .txt, .md, .json or .jsonl files in this folder");
}

// Parts join to the document, end at line ends where there are any, and are valid UTF-8 each.
TEST(TextSource, LongDocumentsComeInParts) {
  const TempFolder folder;
  std::mt19937 random(5);
  std::string text;
  while (text.size() < 50000) text += random_text(random, 60) + (random() % 2 == 0 ? "\n\n" : "");
  const std::string file = folder.write("long.txt", text);
  const TextSourceOptions options = {.paths = file, .part_bytes = 1000};
  EXPECT_EQ(read_all(options), Texts{text});
  const auto source = open_text_source(options);
  Document document;
  int parts = 0;
  while (source->next(document)) {
    ++parts;
    if (!document.last) {
      EXPECT_EQ(document.text.back(), '\n');
    }
  }
  EXPECT_GT(parts, 40);
  std::string line;
  while (line.size() < (3U << 20)) line += "日本語";
  EXPECT_EQ(read_all({.paths = folder.write("line.txt", line)}), Texts{line});
}

TEST(TextSource, EpochsAndShuffling) {
  const TempFolder folder;
  std::string lines;
  for (int i = 0; i < 50; ++i) lines += fmt::format("{{\"text\": \"{}\"}}\n", i);
  const std::string file = folder.write("n.jsonl", lines);
  const Texts in_order = read_all({.paths = file});
  ASSERT_EQ(in_order.size(), 50U);
  const Texts shuffled = read_all({.paths = file, .num_epoch = 2, .shuffle = true});
  ASSERT_EQ(shuffled.size(), 100U);
  const Texts first(shuffled.begin(), shuffled.begin() + 50);
  const Texts second(shuffled.begin() + 50, shuffled.end());
  EXPECT_NE(first, in_order);
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set<std::string>(first.begin(), first.end()).size(), 50U);
  EXPECT_EQ(std::set<std::string>(second.begin(), second.end()).size(), 50U);
  EXPECT_EQ(read_all({.paths = file, .num_epoch = 2, .shuffle = true}), shuffled);
  EXPECT_NE(read_all({.paths = file, .num_epoch = 2, .shuffle = true, .shuffle_seed = 1}),
            shuffled);
  EXPECT_EQ(
      error_of([&] { open_text_source({.paths = file, .num_epoch = 0}); }, ErrorKind::kConfig),
      "num_epoch is 0; expected a positive number, or -1 for ever");
}

TEST(TextSource, ResumesAnywhere) {
  const TempFolder folder;
  const std::string text = fmt::format("{:a>100}\nend\n%\nb\n%\n{:c>70}", "", "");
  const std::string line = fmt::format("{{\"text\": \"{:d>99}\\n{:e>50}\"}}\n", "", "");
  const std::string paths =
      fmt::format("{},{}", folder.write("a.txt", text), folder.write("b.jsonl", line));
  const TextSourceOptions options = {
      .paths = paths, .document_separator = "%", .num_epoch = 2, .shuffle = true, .part_bytes = 20};
  const auto rest = [](Source& source) {
    Texts parts;
    Document document;
    while (source.next(document)) parts.push_back(document.text + (document.last ? "$" : ""));
    return parts;
  };
  const Texts all = rest(*open_text_source(options));
  ASSERT_GT(all.size(), 8U);
  for (size_t skip = 0; skip <= all.size(); ++skip) {
    const auto source = open_text_source(options);
    Document document;
    for (size_t i = 0; i < skip; ++i) source->next(document);
    const auto resumed = open_text_source(options);
    resumed->restore(Json::parse(source->state().dump()));
    EXPECT_EQ(rest(*resumed), Texts(all.begin() + static_cast<std::ptrdiff_t>(skip), all.end()));
  }
}

TEST(TextSource, RefusesAStateOfOtherData) {
  const TempFolder folder;
  const std::string file = folder.write("a.txt", "some text");
  const auto source = open_text_source({.paths = file});
  Json state = source->state();
  const auto restored = [&](const TextSourceOptions& options) {
    return error_of([&] { open_text_source(options)->restore(state); }, ErrorKind::kConfig);
  };
  EXPECT_NE(restored({.paths = file, .shuffle = true}).find("is of other data"), std::string::npos);
  EXPECT_NE(restored({.paths = folder.write("b.txt", "other text")}).find("is of other data"),
            std::string::npos);
  state.set("offset", Json(9));
  Document document;
  source->restore(state);
  EXPECT_EQ(error_of([&] { source->next(document); }, ErrorKind::kConfig),
            "the saved data position is out of range: byte 9 of a document of 9");
  state.set("document", Json(2));
  EXPECT_NE(restored({.paths = file}).find("out of range"), std::string::npos);
}

TEST(TextSource, AFileThatChangesIsAnError) {
  const TempFolder folder;
  const std::string file = folder.write("a.txt", "some text");
  const auto source = open_text_source({.paths = file});
  folder.write("a.txt", "some");
  Document document;
  EXPECT_EQ(error_of([&] { source->next(document); }, ErrorKind::kIo),
            file + ": 4 bytes, but 9 when the run began");
}

}  // namespace
}  // namespace mt::data
