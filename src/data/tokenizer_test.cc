#include "data/tokenizer.h"

#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "data/random_text.h"
#include "data/test_models.h"
#include "data/utf8.h"

namespace mt::data {
namespace {

using Ids = std::vector<int32_t>;

const Tokenizer& gemma() {
  static const Tokenizer tokenizer = Tokenizer::from_file(deps_file("tokenizer.gemma3"));
  return tokenizer;
}

// Just enough of a GGUF reader to take the vocabulary out of a file known to be good.
class GgufMetadata final {
 public:
  explicit GgufMetadata(const std::string& path) : file_(MappedFile::open(path)) {
    at_ = 16;
    for (uint64_t left = number<uint64_t>(); left > 0; --left) {
      const std::string key = text();
      read_value(key, number<uint32_t>());
    }
  }
  GgufVocabulary vocabulary;

 private:
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, file_->bytes().data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  std::string text() {
    const auto size = number<uint64_t>();
    const auto* begin = reinterpret_cast<const char*>(file_->bytes().data()) + at_;
    at_ += size;
    return {begin, size};
  }
  void read_value(const std::string& key, uint32_t type) {
    if (type == 9) {
      const auto element = number<uint32_t>();
      for (uint64_t left = number<uint64_t>(); left > 0; --left) read_scalar(key, element);
    } else {
      read_scalar(key, type);
    }
  }
  void read_scalar(const std::string& key, uint32_t type) {
    static constexpr size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == 8) {
      std::string value = text();
      if (key == "tokenizer.ggml.model") vocabulary.model = value;
      if (key == "tokenizer.ggml.tokens") vocabulary.tokens.push_back(std::move(value));
      return;
    }
    if (key == "tokenizer.ggml.scores") return vocabulary.scores.push_back(number<float>());
    if (key == "tokenizer.ggml.token_type") return vocabulary.types.push_back(number<int32_t>());
    if (key == "tokenizer.ggml.bos_token_id") return void(vocabulary.bos_id = number<uint32_t>());
    if (key == "tokenizer.ggml.eos_token_id") return void(vocabulary.eos_id = number<uint32_t>());
    if (key == "tokenizer.ggml.unknown_token_id")
      return void(vocabulary.unk_id = number<uint32_t>());
    if (key == "tokenizer.ggml.padding_token_id")
      return void(vocabulary.pad_id = number<uint32_t>());
    at_ += kSizes[type];
  }

  std::shared_ptr<const MappedFile> file_;
  size_t at_ = 0;
};

const Tokenizer& from_gguf() {
  static const Tokenizer tokenizer = [] {
    const GgufMetadata file(deps_file("gemma-3-270m-Q4_K_M.gguf"));
    return Tokenizer::from_gguf(file.vocabulary, "gemma-3-270m-Q4_K_M.gguf");
  }();
  return tokenizer;
}

struct Known {
  std::string text;
  Ids ids;
};

// Ids of the Gemma 3 SentencePiece file, computed with the sentencepiece Python package.
const std::vector<Known>& known() {
  static const std::vector<Known> table = {
      {"I love to", {236777, 2765, 531}},
      {"a  b and    c", {236746, 138, 236763, 532, 140, 236755}},
      {"This is 🦙.cpp", {2094, 563, 236743, 478, 397, 404, 391, 236761, 12362}},
      {"a\xC2\xA0"
       "b",
       {236746, 432, 398, 236763}},
      {std::string("\0a", 2), {238, 236746}},
      {"    if x:\n\n\treturn <b>1</b>\r\n",
       {140, 584, 1123, 236787, 108, 255968, 2060, 236743, 200, 236770, 209, 251, 107}},
      {" hello", {29104}},
      {"hello", {23391}},
      {"\xE2\x96\x81", {236743}},
      {"<bos>", {236820, 46757, 236813}},
      {"<start_of_turn>", {105}},
      {"Five, Four, DEFGHIJ 🦙 日本語 END",
       {40756, 236764, 13038, 236764, 4216, 40807, 26722, 236863, 236743, 478, 397, 404, 391, 33375,
        238582, 21734}},
      {"", {}},
  };
  return table;
}

TEST(Tokenizer, PlainTextHasNoSteeringPieces) {
  const std::string text =
      "<start_of_turn>user\n<<end_of_turn>x<mask><unused17>[multimodal]<start_of_<end_of_turn>turn>"
      "<start_of_turn<end_of_image> <b>1</b>\n\n<unused a[";
  for (const Tokenizer* tokenizer : {&gemma(), &from_gguf()}) {
    EXPECT_TRUE(tokenizer->is_steering(105));   // <start_of_turn>
    EXPECT_FALSE(tokenizer->is_steering(107));  // a newline
    const auto steering = [&](const Ids& ids) {
      return std::count_if(ids.begin(), ids.end(), [&](int32_t id) {
        return tokenizer->is_steering(id) || tokenizer->is_control(id);
      });
    };
    EXPECT_GE(steering(tokenizer->encode(text)), 6);  // the file has no <end_of_image>
    const Ids ids = tokenizer->encode(text, {.plain = true});
    EXPECT_EQ(steering(ids), 0);
    EXPECT_EQ(tokenizer->decode(ids), text);
    // Every one of the vocabulary's, and nothing else is changed.
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
      if (!tokenizer->is_steering(id)) continue;
      const std::string& piece = tokenizer->piece(id);
      ASSERT_EQ(steering(tokenizer->encode(piece, {.plain = true})), 0) << piece;
    }
    for (const Known& one : known()) {
      if (one.text == "<start_of_turn>") continue;
      EXPECT_EQ(tokenizer->encode(one.text, {.plain = true}), one.ids) << one.text;
    }
  }
  // In time, whatever the text.
  const Ids many = gemma().encode(std::string(1 << 18, '<'), {.plain = true});
  EXPECT_FALSE(many.empty());
}

TEST(Tokenizer, KnownIdsFromBothSources) {
  for (const Known& one : known()) {
    EXPECT_EQ(gemma().encode(one.text), one.ids) << one.text;
    EXPECT_EQ(from_gguf().encode(one.text), one.ids) << one.text;
  }
  for (const Tokenizer* tokenizer : {&gemma(), &from_gguf()}) {
    EXPECT_EQ(tokenizer->vocab_size(), 262144);
    EXPECT_EQ(tokenizer->pad_id(), 0);
    EXPECT_EQ(tokenizer->eos_id(), 1);
    EXPECT_EQ(tokenizer->bos_id(), 2);
    EXPECT_EQ(tokenizer->unk_id(), 3);
    EXPECT_EQ(tokenizer->id_of("<end_of_turn>"), 106);
    EXPECT_EQ(tokenizer->id_of("no such piece"), -1);
    EXPECT_EQ(tokenizer->piece(138), "\xE2\x96\x81\xE2\x96\x81");
    EXPECT_TRUE(tokenizer->is_control(2));
    EXPECT_TRUE(tokenizer->is_byte(238));
  }
}

// Exactly one BOS, whatever the text says.
TEST(Tokenizer, BosOnce) {
  for (const std::string text : {"x", "<bos>x", "", "<eos>"}) {
    const Ids ids = gemma().encode(text, {.add_bos = true, .add_eos = true});
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), 1) << text;
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 1) << text;
    EXPECT_EQ(ids.front(), 2);
    EXPECT_EQ(ids.back(), 1);
    EXPECT_EQ(gemma().decode(ids), text);
  }
}

TEST(Tokenizer, RandomTextsComeBackAndSourcesAgree) {
  std::mt19937 random(1);
  for (int i = 0; i < 10000; ++i) {
    const std::string text = random_text(random, 40);
    const Ids ids = gemma().encode(text);
    ASSERT_EQ(from_gguf().encode(text), ids) << text;
    ASSERT_EQ(gemma().decode(ids), text);
    ASSERT_EQ(from_gguf().decode(ids), text);
  }
}

TEST(Tokenizer, SpaceMarkDecodesToSpace) {
  EXPECT_EQ(gemma().decode(gemma().encode("a\xE2\x96\x81"
                                          "b")),
            "a b");
  EXPECT_EQ(gemma().decode(Ids{29104}), " hello");  // a continuation keeps its leading space
}

// Any ids: as the library decodes them; streamed: the same, valid at every moment.
TEST(Tokenizer, DecodesAnyIdsAsTheLibraryDoesWholeAndStreamed) {
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.Load(deps_file("tokenizer.gemma3")).ok());
  std::mt19937 random(2);
  for (int i = 0; i < 5000; ++i) {
    Ids ids(random() % 20);
    for (int32_t& id : ids) {
      const auto kind = random() % 3;
      id = static_cast<int32_t>(kind == 0 ? random() % 262144 : 238 + random() % 256);
      if (kind == 2) id = static_cast<int32_t>(random() % 300);
    }
    std::string expected;
    ASSERT_TRUE(library.Decode(ids, &expected).ok());
    ASSERT_EQ(gemma().decode(ids), expected);
    StreamDecoder stream(gemma());
    std::string streamed;
    for (const int32_t id : ids) {
      const std::string part = stream.push(id);
      ASSERT_FALSE(first_invalid_utf8(part));
      streamed += part;
    }
    ASSERT_EQ(streamed + stream.flush(), expected);
  }
}

TEST(Tokenizer, StreamHoldsBackIncompleteCharacters) {
  StreamDecoder stream(gemma());
  std::vector<std::string> parts;
  for (const int32_t id : {236743, 478, 397, 404, 391, 236761}) parts.push_back(stream.push(id));
  EXPECT_EQ(parts, (std::vector<std::string>{" ", "", "", "", "🦙", "."}));
  EXPECT_EQ(stream.push(478), "");
  EXPECT_EQ(stream.push(236761), "\xEF\xBF\xBD.");
  EXPECT_EQ(stream.push(478), "");
  EXPECT_EQ(stream.flush(), "\xEF\xBF\xBD");
}

// Long texts are cut inside encode(); the ids must be those of the whole.
TEST(Tokenizer, LongTextsAreCutWithoutATrace) {
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.Load(deps_file("tokenizer.gemma3")).ok());
  std::mt19937 random(3);
  std::string text;
  while (text.size() < 200000) text += random_text(random, 40) + (random() % 3 == 0 ? "\n\n" : " ");
  Ids expected;
  ASSERT_TRUE(library.Encode(text, &expected).ok());
  EXPECT_EQ(gemma().encode(text), expected);
  const std::string line(3 << 20, 'a');  // no line end at all: cut every MiB
  EXPECT_EQ(gemma().decode(gemma().encode(line)), line);
}

std::string message(const std::function<void()>& call, ErrorKind kind) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind);
    return e.what();
  }
  return "no error";
}

TEST(Tokenizer, CallMistakes) {
  EXPECT_EQ(message([] { gemma().encode("ab\xFF"); }, ErrorKind::kIo),
            "text is not valid UTF-8 at byte 2");
  EXPECT_EQ(message([] { gemma().decode(Ids{262144}); }, ErrorKind::kConfig),
            "token id 262144 is outside the vocabulary of 262144");
  EXPECT_EQ(message([] { (void)gemma().piece(-1); }, ErrorKind::kConfig),
            "token id -1 is outside the vocabulary of 262144");
  ModelSpec spec = tiny_spec();
  spec.bos_id = -1;
  const Tokenizer no_bos = Tokenizer::from_bytes(write_model(spec), "tiny");
  EXPECT_EQ(message([&] { no_bos.encode("a", {.add_bos = true}); }, ErrorKind::kConfig),
            "the tokenizer has no BOS piece; set add_bos=false");
}

TEST(Tokenizer, DummyPrefixIsDroppedAgain) {
  ModelSpec spec = tiny_spec();
  spec.add_dummy_prefix = true;
  const Tokenizer tokenizer = Tokenizer::from_bytes(write_model(spec), "prefix");
  const Ids ids = tokenizer.encode("the the");
  EXPECT_EQ(ids.size(), 2);
  EXPECT_EQ(tokenizer.decode(ids), "the the");
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(2), "");
  EXPECT_EQ(stream.push(ids[0]), "the");
  EXPECT_EQ(stream.push(ids[1]), " the");
}

TEST(Tokenizer, GgufVocabularyMistakes) {
  GgufVocabulary good;
  good.model = "llama";
  good.tokens = {"<unk>", "a"};
  good.scores = {0, 0};
  good.types = {2, 1};
  good.unk_id = 0;
  EXPECT_EQ(Tokenizer::from_gguf(good, "g").encode("a"), Ids{1});
  const auto says = [&](const std::function<void(GgufVocabulary&)>& change) {
    GgufVocabulary bad = good;
    change(bad);
    return message([&] { Tokenizer::from_gguf(bad, "g"); }, ErrorKind::kIo);
  };
  EXPECT_EQ(says([](auto& v) { v.model = "gpt2"; }),
            "g: tokenizer.ggml.model is 'gpt2'; only 'llama' (SentencePiece) is supported");
  EXPECT_EQ(says([](auto& v) { v.scores.pop_back(); }),
            "g: tokenizer.ggml has 2 tokens, 1 scores and 2 token types");
  EXPECT_EQ(says([](auto& v) { v.bos_id = 2; }),
            "g: tokenizer.ggml.bos_token_id is 2 in a vocabulary of 2");
  EXPECT_EQ(says([](auto& v) { v.types[1] = 9; }), "g: token 1 has the unknown token type 9");
  EXPECT_EQ(says([](auto& v) { v.unk_id = -1, v.types[0] = 1; }),
            "g: not a usable SentencePiece model: no piece is 'unknown' (<unk>)");
}

}  // namespace
}  // namespace mt::data
