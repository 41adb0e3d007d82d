// Text <-> token ids with the SentencePiece library, from a SentencePiece file or from the
// vocabulary in a GGUF's metadata (which is turned into a SentencePiece model, so that one
// algorithm makes the ids of both).
//
// What text means:
//  * No dummy prefix and no trimming: " hello" and "hello" differ; decode(encode(x)) == x for every
//    valid UTF-8 text without U+2581. U+2581 is SentencePiece's mark for a space: it decodes to
//    one.
//  * Characters without a piece become byte pieces <0xNN>, never <unk>; NUL is <0x00>.
//  * Control pieces (<bos>, <eos>, <pad>) are never read from text: a literal "<bos>" gives three
//    ordinary pieces, so that add_bos puts the only BOS there. User-defined pieces
//    (<start_of_turn>, runs of newlines, HTML tags) are read from text; EncodeOptions::plain
//    leaves those that steer a model (<start_of_turn>, <mask>, <unused0>, ...) as ordinary text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mt::data {

// tokenizer.ggml.* of a GGUF file, as the caller read it. Ids are -1 where the key is absent.
struct GgufVocabulary {
  std::string model;                // tokenizer.ggml.model: "llama" is SentencePiece BPE
  std::vector<std::string> tokens;  // spaces may stand for U+2581 in user-defined pieces
  std::vector<float> scores;        // as many as tokens
  std::vector<int32_t> types;       // as many as tokens; 1 normal, 2 unknown, 3 control,
                                    // 4 user defined, 5 unused, 6 byte
  int64_t bos_id = -1;
  int64_t eos_id = -1;
  int64_t unk_id = -1;
  int64_t pad_id = -1;
  bool add_space_prefix = false;
};

// The bytes of a SentencePiece ModelProto for the vocabulary. GGUF marks every special token
// "control"; only bos, eos and pad stay so, the others become user-defined as they are in Gemma's
// own SentencePiece file (<start_of_turn> is read from text in both). Throws kIo.
std::string sentencepiece_model(const GgufVocabulary& vocabulary, const std::string& name);

struct EncodeOptions {
  bool add_bos = false;
  bool add_eos = false;
  bool plain = false;  // of a text that a stranger wrote
};

class Tokenizer final {
 public:
  // Throw kIo with one line that names the file (or `name`) for anything wrong with the bytes.
  static Tokenizer from_file(const std::string& path);  // a SentencePiece model
  static Tokenizer from_bytes(std::string_view model, const std::string& name);
  static Tokenizer from_gguf(const GgufVocabulary& vocabulary, const std::string& name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Safe to call from several threads. Throws kIo if the text is not valid UTF-8 and kConfig if
  // add_bos or add_eos asks for a piece that the vocabulary lacks.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Always valid UTF-8: bytes that don't form a character become U+FFFD. Control pieces give
  // nothing. Throws kConfig on an id outside [0, vocab_size).
  std::string decode(std::span<const int32_t> ids) const;

  // As in the vocabulary, with U+2581 for a space; throws kConfig on a bad id.
  const std::string& piece(int64_t id) const;
  bool is_control(int64_t id) const;
  bool is_byte(int64_t id) const;
  // A user-defined piece that steers a model, by its name in Gemma's vocabulary.
  bool is_steering(int64_t id) const;
  // The id of a piece by its exact text ("<end_of_turn>"), or -1.
  int64_t id_of(std::string_view piece) const;
  int64_t vocab_size() const;
  // -1 if the vocabulary has none.
  int64_t bos_id() const;
  int64_t eos_id() const;
  int64_t pad_id() const;
  int64_t unk_id() const;
  // What from_gguf makes an equal tokenizer of, with its control pieces as other readers of GGUF
  // files want them; nullopt for models that GGUF can't express (unigram, normalising text).
  std::optional<GgufVocabulary> vocabulary() const;

 private:
  friend class StreamDecoder;
  struct Model;
  explicit Tokenizer(std::unique_ptr<Model> model);
  std::unique_ptr<Model> model_;
};

// Decodes ids one at a time. The pieces of text it returns are valid UTF-8 each by itself; their
// concatenation with flush() at the end equals Tokenizer::decode of all ids.
class StreamDecoder final {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  // The text that this id completes; "" while the bytes of a character are incomplete.
  std::string push(int32_t id);
  // At the end: U+FFFD for each byte that never became a character.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  std::string held_;  // the first 1 to 3 bytes of a character
  bool at_start_ = true;
};

}  // namespace mt::data
