#include "data/open_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/gguf.h"
#include "data/sentencepiece_model.h"
#include "data/temp_folder.h"
#include "data/test_models.h"

namespace mt::data {
namespace {

constexpr const char* kSentencePiece = MT_DEPS "/weights/tokenizer.gemma3";
constexpr const char* kGguf = MT_DEPS "/weights/gemma-3-270m-Q4_K_M.gguf";
constexpr int64_t kRows = 262'144;

// The vocabulary of `tokenizer` in a GGUF file of its own.
Tokenizer written_and_read(const Tokenizer& tokenizer, int64_t rows, const std::string& path) {
  checkpoint::GgufMetadata metadata;
  put_vocabulary(metadata, tokenizer.vocabulary().value(), rows);
  checkpoint::GgufWriter writer(path, metadata, {});
  writer.commit();
  return open_tokenizer(path, rows);
}

TEST(Vocabulary, OfGemmaReadsBackTheSameFromBothKindsOfFile) {
  const std::string text =
      "I love  to\n\n\n\ttest <b>it</b> \xF0\x9F\x90\xB8 \xE6\x97\xA5\xE6\x9C\xAC, <start_of_turn>"
      "user\n 12,345 caf\xC3\xA9 \x01 <unused7><end_of_turn><bos>";
  const TempFolder folder;
  for (const char* path : {kSentencePiece, kGguf}) {
    const Tokenizer tokenizer = open_tokenizer(path, kRows);
    const Tokenizer back = written_and_read(tokenizer, kRows, folder.path() + "/x.gguf");
    EXPECT_EQ(back.vocab_size(), tokenizer.vocab_size());
    EXPECT_EQ(back.bos_id(), tokenizer.bos_id());
    EXPECT_EQ(back.eos_id(), tokenizer.eos_id());
    EXPECT_EQ(back.unk_id(), tokenizer.unk_id());
    EXPECT_EQ(back.pad_id(), tokenizer.pad_id());
    for (const bool plain : {false, true}) {
      const auto ids = tokenizer.encode(text, {.add_bos = true, .plain = plain});
      EXPECT_EQ(back.encode(text, {.add_bos = true, .plain = plain}), ids) << path;
      EXPECT_EQ(back.decode(ids), tokenizer.decode(ids)) << path;
    }
  }
}

// Google's SentencePiece file makes what llama.cpp's converter made of it. Behind 255,999 the two
// files name their unused pieces differently.
TEST(Vocabulary, OfGemmaIsThatOfItsGgufFile) {
  const GgufVocabulary ours = open_tokenizer(kSentencePiece, kRows).vocabulary().value();
  const auto file = checkpoint::GgufFile::open(kGguf);
  const auto& tokens = file->metadata("tokenizer.ggml.tokens")->as_strings();
  const auto& scores = file->metadata("tokenizer.ggml.scores")->as_floats();
  const auto types = file->metadata("tokenizer.ggml.token_type")->as_ints();
  ASSERT_EQ(tokens.size(), ours.tokens.size());
  std::vector<std::string> other_types;
  for (size_t i = 0; i < 255'999; ++i) {
    ASSERT_EQ(ours.tokens[i], tokens[i]);
    if (types[i] == 1) {
      ASSERT_EQ(ours.scores[i], scores[i]) << tokens[i];
    }
    if (types[i] != ours.types[i]) other_types.push_back(tokens[i]);
  }
  EXPECT_EQ(other_types, (std::vector<std::string>{"<unk>", "[multimodal]"}));
}

TEST(Vocabulary, IsFilledUpToTheRowsOfTheTable) {
  const TempFolder folder;
  const Tokenizer tokenizer = tiny_tokenizer();
  const int64_t rows = tokenizer.vocab_size() + 3;
  const Tokenizer back = written_and_read(tokenizer, rows, folder.path() + "/x.gguf");
  EXPECT_EQ(back.vocab_size(), rows);
  EXPECT_EQ(back.piece(rows - 1), fmt::format("[PAD{}]", rows - 1));
  EXPECT_EQ(back.encode("the [PAD] th\n\n"), tokenizer.encode("the [PAD] th\n\n"));
}

// 4b and larger: 262,144 pieces of text, and placeholders of images behind them.
TEST(Vocabulary, ImagePlaceholdersBehindTheModelsRowsAreLeftOut) {
  const TempFolder folder;
  GgufVocabulary v = tiny_tokenizer().vocabulary().value();
  const auto rows = static_cast<int64_t>(v.tokens.size());
  const std::string path = folder.path() + "/x.gguf";
  const auto write = [&](const std::string& text, int32_t type) {
    v.tokens.push_back(text);
    v.scores.push_back(0);
    v.types.push_back(type);
    checkpoint::GgufMetadata metadata;
    put_vocabulary(metadata, v, rows + 10);  // with unused ones
    checkpoint::GgufWriter(path, metadata, {}).commit();
  };
  write("<image_soft_token>", 3);
  const Tokenizer tokenizer = open_tokenizer(path, rows);
  EXPECT_EQ(tokenizer.vocab_size(), rows);
  EXPECT_EQ(tokenizer.encode("the <image_soft_token>"),
            tiny_tokenizer().encode("the <image_soft_token>"));
  write("word", 1);
  EXPECT_THROW(open_tokenizer(path, rows), Error);
}

TEST(Vocabulary, FitsTheModelsRowsOrNot) {
  const TempFolder folder;
  const std::string path = folder.path() + "/x.model";
  const Tokenizer tokenizer = tiny_tokenizer();
  write_file(path, write_model(tiny_spec()));
  const int64_t pieces = tokenizer.vocab_size();
  const auto fault = [&](const std::string& file, int64_t rows) -> std::string {
    try {
      open_tokenizer(file, rows);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(fault(path, pieces), "");
  EXPECT_EQ(padding_note(tokenizer, "x", pieces), "");
  EXPECT_EQ(fault(path, pieces + 20), "");
  EXPECT_EQ(padding_note(tokenizer, "x", pieces + 20),
            fmt::format("x has {} pieces, the model has vocab_size={}: the last 20 as padding",
                        pieces, pieces + 20));
  for (const int64_t rows : {pieces - 1, pieces + 200}) {
    EXPECT_EQ(
        fault(path, rows),
        fmt::format("{} has {} pieces, the model has vocab_size={}: they don't belong together",
                    path, pieces, rows));
  }
  // A hundredth of a large vocabulary is more than padding.
  EXPECT_EQ(fault(kSentencePiece, kRows + 64), "");
  EXPECT_NE(fault(kSentencePiece, kRows + 2048), "");
}

TEST(Vocabulary, OfWhatGgufCantExpressIsNone) {
  ModelSpec spec = tiny_spec();
  EXPECT_TRUE(Tokenizer::from_bytes(write_model(spec), "x").vocabulary().has_value());
  std::string unigram = write_model(spec);
  // The trainer spec (field 2) begins with model_type (field 3): 2 is BPE, 1 unigram.
  const size_t at = unigram.find(std::string("\x18\x02\x98\x02", 4));
  ASSERT_NE(at, std::string::npos);
  unigram[at + 1] = 1;
  EXPECT_FALSE(Tokenizer::from_bytes(unigram, "x").vocabulary().has_value());
}

}  // namespace
}  // namespace mt::data
