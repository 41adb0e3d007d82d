#include "data/tokenizer.h"

#include <sentencepiece_processor.h>

#include <exception>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "data/sentencepiece_model.h"
#include "data/text_cut.h"
#include "data/utf8.h"

namespace mt::data {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr size_t kUsualPart = 16 * 1024;  // the library's time per byte grows with the text

size_t index(int64_t id) { return static_cast<size_t>(id); }

void check_vocabulary(const GgufVocabulary& vocabulary, const std::string& name) {
  if (vocabulary.model != "llama") {
    throw fail(ErrorKind::kIo,
               "{}: tokenizer.ggml.model is '{}'; only 'llama' (SentencePiece) is "
               "supported",
               name, vocabulary.model);
  }
  const size_t count = vocabulary.tokens.size();
  if (vocabulary.scores.size() != count || vocabulary.types.size() != count) {
    throw fail(ErrorKind::kIo, "{}: tokenizer.ggml has {} tokens, {} scores and {} token types",
               name, count, vocabulary.scores.size(), vocabulary.types.size());
  }
  const auto check_id = [&](int64_t id, const char* key) {
    if (id < -1 || id >= static_cast<int64_t>(count)) {
      throw fail(ErrorKind::kIo, "{}: tokenizer.ggml.{}_token_id is {} in a vocabulary of {}", name,
                 key, id, count);
    }
  };
  check_id(vocabulary.bos_id, "bos");
  check_id(vocabulary.eos_id, "eos");
  check_id(vocabulary.unk_id, "unknown");
  check_id(vocabulary.pad_id, "padding");
}

PieceType piece_type(const GgufVocabulary& vocabulary, int64_t id, const std::string& name) {
  if (id == vocabulary.unk_id) return PieceType::kUnknown;
  const int32_t type = vocabulary.types[index(id)];
  if (type < 1 || type > 6) {
    throw fail(ErrorKind::kIo, "{}: token {} has the unknown token type {}", name, id, type);
  }
  const bool special =
      id == vocabulary.bos_id || id == vocabulary.eos_id || id == vocabulary.pad_id;
  if (special) return PieceType::kControl;
  const auto as_is = static_cast<PieceType>(type);
  return as_is == PieceType::kControl ? PieceType::kUserDefined : as_is;
}

std::string with_space_marks(const std::string& token) {
  std::string text;
  for (const char c : token) c == ' ' ? text.append(kSpaceMark) : text.append(1, c);
  return text;
}

std::string without_space_marks(std::string text) {
  for (size_t at = text.find(kSpaceMark); at != std::string::npos; at = text.find(kSpaceMark, at)) {
    text.replace(at, kSpaceMark.size(), " ");
  }
  return text;
}

constexpr size_t kLongestSteering = 32;

// The user-defined pieces that are no text of their own. (The others are runs of white space and
// HTML tags.)
bool steers(std::string_view piece) {
  for (const char* start : {"<start_of_", "<end_of_", "<unused"}) {
    if (piece.starts_with(start)) return true;
  }
  return piece == "<mask>" || piece == "[multimodal]" || piece == "<image_soft_token>";
}

int hex_digit(char c) { return c <= '9' ? c - '0' : c - 'A' + 10; }

}  // namespace

std::string sentencepiece_model(const GgufVocabulary& vocabulary, const std::string& name) {
  check_vocabulary(vocabulary, name);
  ModelSpec spec;
  spec.pieces.reserve(vocabulary.tokens.size());
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const PieceType type = piece_type(vocabulary, static_cast<int64_t>(i), name);
    const std::string& token = vocabulary.tokens[i];
    spec.pieces.push_back({type == PieceType::kUserDefined ? with_space_marks(token) : token,
                           vocabulary.scores[i], type});
  }
  spec.bos_id = vocabulary.bos_id;
  spec.eos_id = vocabulary.eos_id;
  spec.pad_id = vocabulary.pad_id;
  spec.unk_id = vocabulary.unk_id;
  spec.add_dummy_prefix = vocabulary.add_space_prefix;
  return write_model(spec);
}

struct Tokenizer::Model {
  sentencepiece::SentencePieceProcessor processor;
  ModelFacts facts;

  void check_id(int64_t id) const {
    if (id < 0 || index(id) >= facts.types.size()) {
      throw fail(ErrorKind::kConfig, "token id {} is outside the vocabulary of {}", id,
                 facts.types.size());
    }
  }
  const std::string& piece(int64_t id) const {
    check_id(id);
    return processor.IdToPiece(static_cast<int>(id));
  }
  void append_surface(int64_t id, bool& at_start, std::string& out) const;
  void encode_part(std::string_view text, std::vector<int32_t>& ids) const;
  bool is_steering(int64_t id) const {
    return facts.types[index(id)] == PieceType::kUserDefined &&
           steers(processor.IdToPiece(static_cast<int>(id)));
  }
  size_t plain_length(std::string_view text) const;
};

// Up to within the first steering piece: what is cut in two is not read as one.
size_t Tokenizer::Model::plain_length(std::string_view text) const {
  for (size_t at = text.find_first_of("<["); at != std::string_view::npos;
       at = text.find_first_of("<[", at + 1)) {
    const std::string_view from = text.substr(at, kLongestSteering);
    const std::string_view piece = from.substr(0, from.find(text[at] == '<' ? '>' : ']') + 1);
    if (!steers(piece)) continue;
    const int id = processor.PieceToId({piece.data(), piece.size()});
    if (processor.IdToPiece(id) == piece) return at + 1;
  }
  return text.size();
}

// The bytes that an id stands for; at_start: nothing but control pieces so far.
void Tokenizer::Model::append_surface(int64_t id, bool& at_start, std::string& out) const {
  const std::string& text = piece(id);
  const PieceType type = facts.types[index(id)];
  if (type == PieceType::kControl) return;
  const bool first = std::exchange(at_start, false);
  if (type == PieceType::kByte) {
    out.push_back(static_cast<char>(hex_digit(text[3]) * 16 + hex_digit(text[4])));
    return;
  }
  if (type == PieceType::kUnknown) {
    out += facts.unk_surface;
    return;
  }
  std::string_view rest = text;
  if (first && facts.drops_first_space && rest.starts_with(kSpaceMark)) rest.remove_prefix(3);
  while (!rest.empty()) {
    const size_t mark = std::min(rest.find(kSpaceMark), rest.size());
    out.append(rest.substr(0, mark));
    rest.remove_prefix(mark);
    if (rest.empty()) break;
    out.push_back(' ');
    rest.remove_prefix(kSpaceMark.size());
  }
}

void Tokenizer::Model::encode_part(std::string_view text, std::vector<int32_t>& ids) const {
  std::vector<int> part;
  const auto status = processor.Encode({text.data(), text.size()}, &part);
  if (!status.ok()) {
    throw fail(ErrorKind::kIo, "the SentencePiece library can't encode a text of {} bytes: {}",
               text.size(), status.ToString());
  }
  ids.insert(ids.end(), part.begin(), part.end());
}

Tokenizer::Tokenizer(std::unique_ptr<Model> model) : model_(std::move(model)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::from_file(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (file->bytes().size() > kLargestModel) {
    throw fail(ErrorKind::kIo, "{}: {} bytes is too long for a SentencePiece model (at most {})",
               path, file->bytes().size(), kLargestModel);
  }
  std::string bytes(file->bytes().size(), '\0');
  file->read_at(0, std::as_writable_bytes(std::span(bytes)));
  return from_bytes(bytes, path);
}

Tokenizer Tokenizer::from_bytes(std::string_view bytes, const std::string& name) {
  auto model = std::make_unique<Model>();
  model->facts = check_model(bytes, name);
  std::string reason;
  try {
    const auto status = model->processor.LoadFromSerializedProto({bytes.data(), bytes.size()});
    if (!status.ok()) reason = status.ToString();
  } catch (const std::exception& e) {
    reason = e.what();
  }
  if (!reason.empty()) {
    throw fail(ErrorKind::kIo, "{}: not a usable SentencePiece model: {}", name, reason);
  }
  return Tokenizer(std::move(model));
}

Tokenizer Tokenizer::from_gguf(const GgufVocabulary& vocabulary, const std::string& name) {
  return from_bytes(sentencepiece_model(vocabulary, name), name);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (const auto at = first_invalid_utf8(text)) {
    throw fail(ErrorKind::kIo, "text is not valid UTF-8 at byte {}", *at);
  }
  if ((options.add_bos && bos_id() < 0) || (options.add_eos && eos_id() < 0)) {
    throw fail(ErrorKind::kConfig, "the tokenizer has no {} piece; set {}=false",
               options.add_bos && bos_id() < 0 ? "BOS" : "EOS",
               options.add_bos && bos_id() < 0 ? "add_bos" : "add_eos");
  }
  std::vector<int32_t> ids;
  if (options.add_bos) ids.push_back(static_cast<int32_t>(bos_id()));
  const size_t usual = model_->facts.lines_are_independent ? kUsualPart : kLongestPart;
  while (!text.empty()) {
    std::string_view part = text.substr(0, part_length(text, usual, kLongestPart));
    text.remove_prefix(part.size());
    while (!part.empty()) {
      const size_t length = options.plain ? model_->plain_length(part) : part.size();
      model_->encode_part(part.substr(0, length), ids);
      part.remove_prefix(length);
    }
  }
  if (options.add_eos) ids.push_back(static_cast<int32_t>(eos_id()));
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string bytes;
  bool at_start = true;
  for (const int32_t id : ids) model_->append_surface(id, at_start, bytes);
  return take_valid_utf8(bytes, true);
}

const std::string& Tokenizer::piece(int64_t id) const { return model_->piece(id); }
bool Tokenizer::is_control(int64_t id) const {
  model_->check_id(id);
  return model_->facts.types[index(id)] == PieceType::kControl;
}
bool Tokenizer::is_byte(int64_t id) const {
  model_->check_id(id);
  return model_->facts.types[index(id)] == PieceType::kByte;
}
bool Tokenizer::is_steering(int64_t id) const {
  model_->check_id(id);
  return model_->is_steering(id);
}
int64_t Tokenizer::id_of(std::string_view text) const {
  const int id = model_->processor.PieceToId({text.data(), text.size()});
  return id >= 0 && id < vocab_size() && piece(id) == text ? id : -1;
}
int64_t Tokenizer::vocab_size() const { return static_cast<int64_t>(model_->facts.types.size()); }
int64_t Tokenizer::bos_id() const { return model_->facts.bos_id; }
int64_t Tokenizer::eos_id() const { return model_->facts.eos_id; }
int64_t Tokenizer::pad_id() const { return model_->facts.pad_id; }
int64_t Tokenizer::unk_id() const { return model_->facts.unk_id; }

std::optional<GgufVocabulary> Tokenizer::vocabulary() const {
  if (!model_->facts.is_plain_bpe) return std::nullopt;
  GgufVocabulary v;
  v.model = "llama";
  for (int64_t id = 0; id < vocab_size(); ++id) {
    v.scores.push_back(model_->processor.GetScore(static_cast<int>(id)));
    const PieceType type = is_steering(id) ? PieceType::kControl : model_->facts.types[index(id)];
    v.types.push_back(static_cast<int32_t>(type));
    const bool raw = type == PieceType::kUserDefined;  // others look for these in the text itself
    v.tokens.push_back(raw ? without_space_marks(piece(id)) : piece(id));
  }
  v.bos_id = bos_id();
  v.eos_id = eos_id();
  v.unk_id = unk_id();
  v.pad_id = pad_id();
  v.add_space_prefix = model_->facts.drops_first_space;
  return v;
}

std::string StreamDecoder::push(int32_t id) {
  tokenizer_->model_->append_surface(id, at_start_, held_);
  return take_valid_utf8(held_, false);
}

std::string StreamDecoder::flush() { return take_valid_utf8(held_, true); }

}  // namespace mt::data
