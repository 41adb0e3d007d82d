#include "data/sentencepiece_model.h"

#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <optional>

#include "base/error.h"
#include "data/utf8.h"
#include "data/wire.h"

namespace mt::data {
namespace {

// Field numbers of sentencepiece_model.proto.
enum ModelField : uint32_t { kPieces = 1, kTrainer = 2, kNormalizer = 3, kDenormalizer = 5 };
enum PieceField : uint32_t { kText = 1, kScore = 2, kType = 3 };
enum TrainerField : uint32_t {
  kModelType = 3,
  kWhitespaceAsSuffix = 24,
  kByteFallback = 35,
  kUnkId = 40,
  kBosId = 41,
  kEosId = 42,
  kPadId = 43,
  kUnkSurface = 44,
  kUnkPiece = 45,
  kBosPiece = 46,
  kEosPiece = 47,
  kPadPiece = 48,
};
enum NormalizerField : uint32_t {
  kNormalizerName = 1,
  kCharsMap = 2,
  kDummyPrefix = 3,
  kRemoveExtraSpaces = 4,
  kEscapeSpaces = 5,
};
constexpr uint64_t kUnigram = 1;
constexpr uint64_t kBpe = 2;

// 0 to 255 for the text of a byte piece, <0x00> to <0xFF>.
std::optional<int> byte_value(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'A' && c <= 'F')) return std::nullopt;
    value = value * 16 + (digit ? c - '0' : c - 'A' + 10);
  }
  return value;
}

// Text -> id of the pieces added so far: open addressing over at most half of the slots, because a
// node for each of 262,144 pieces costs more than all other checks together.
class PieceTable final {
 public:
  void reserve(size_t pieces) {
    texts_.reserve(pieces);
    slots_.assign(std::bit_ceil(2 * pieces + 2), kFree);
  }
  // The id of an equal piece, or -1.
  int64_t find(std::string_view text) const {
    const uint32_t id = slots_.empty() ? kFree : slots_[slot(text)];
    return id == kFree ? -1 : int64_t{id};
  }
  void add(std::string_view text) {
    slots_[slot(text)] = static_cast<uint32_t>(texts_.size());
    texts_.push_back(text);
  }

 private:
  static constexpr uint32_t kFree = 0xffffffff;
  size_t slot(std::string_view text) const {
    size_t at = std::hash<std::string_view>()(text) & (slots_.size() - 1);
    while (slots_[at] != kFree && texts_[slots_[at]] != text) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  std::vector<std::string_view> texts_;
  std::vector<uint32_t> slots_;
};

class Checker final {
 public:
  explicit Checker(const std::string& name) : name_(name + ": not a usable SentencePiece model") {}

  ModelFacts check(std::string_view bytes) {
    if (bytes.size() > kLargestModel) bad("{} bytes; at most {}", bytes.size(), kLargestModel);
    reserve(bytes);
    WireReader reader(bytes, name_);
    WireField field;
    while (reader.next(field)) {
      if (field.number == kPieces) piece(reader, field);
      if (field.number == kTrainer) trainer(reader, field);
      if (field.number == kNormalizer) normalizer(reader, field);
      if (field.number == kDenormalizer) denormalizer(reader, field);
    }
    conclude();
    return std::move(facts_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    throw fail(ErrorKind::kIo, "{}: {}", name_, fmt::format(format, std::forward<Args>(args)...));
  }

  void reserve(std::string_view bytes) {
    size_t count = 0;
    WireReader reader(bytes, name_);
    WireField field;
    while (reader.next(field)) count += field.number == kPieces;
    if (count > kMostPieces) bad("{} pieces; at most {}", count, kMostPieces);
    ids_.reserve(count);
    facts_.types.reserve(count);
  }

  void expect(const WireField& field, WireType type, std::string_view what) const {
    if (field.type != type) bad("{} has wire type {}", what, static_cast<int>(field.type));
  }

  void piece(const WireReader& outer, const WireField& message) {
    const size_t id = facts_.types.size();
    expect(message, WireType::kBytes, "a piece");
    std::string_view text;
    uint64_t type = 1;
    WireReader reader = outer.inside(message);
    WireField field;
    while (reader.next(field)) {
      if (field.number == kText) {
        expect(field, WireType::kBytes, "the text of a piece");
        text = field.bytes;
      } else if (field.number == kScore) {
        expect(field, WireType::kFixed32, "the score of a piece");
        const auto score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
        if (!std::isfinite(score)) bad("piece {} has the score {}", id, score);
      } else if (field.number == kType) {
        expect(field, WireType::kVarint, "the type of a piece");
        type = field.value;
      }
    }
    if (type < 1 || type > 6) bad("piece {} has the unknown type {}", id, type);
    add_piece(id, text, static_cast<PieceType>(type));
  }

  void add_piece(size_t id, std::string_view text, PieceType type) {
    if (text.empty()) bad("piece {} is empty", id);
    if (text.size() > kLongestPiece) {
      bad("piece {} is {} bytes long; at most {}", id, text.size(), kLongestPiece);
    }
    if (text.find('\0') != std::string_view::npos) bad("piece {} has a NUL in it", id);
    if (first_invalid_utf8(text)) bad("piece {} is not valid UTF-8", id);
    const int64_t other = ids_.find(text);
    if (other >= 0) bad("pieces {} and {} are equal", other, id);
    ids_.add(text);
    if (type == PieceType::kUnknown) {
      if (facts_.unk_id >= 0) bad("pieces {} and {} are both 'unknown'", facts_.unk_id, id);
      facts_.unk_id = static_cast<int64_t>(id);
    }
    if (type == PieceType::kByte) {
      const auto value = byte_value(text);
      if (!value) bad("byte piece {} is not <0x00> to <0xFF>", id);
      has_byte_[static_cast<size_t>(*value)] = true;
    }
    const size_t after_lines = text.find_first_not_of('\n', text.find('\n'));
    if (after_lines != std::string_view::npos) piece_crosses_line_ = true;
    facts_.types.push_back(type);
  }

  void trainer(const WireReader& outer, const WireField& message) {
    expect(message, WireType::kBytes, "the trainer spec");
    WireReader reader = outer.inside(message);
    WireField field;
    while (reader.next(field)) {
      switch (field.number) {
        case kModelType: expect(field, WireType::kVarint, "model_type"), kind_ = field.value; break;
        case kWhitespaceAsSuffix:
          if (field.value != 0) bad("treat_whitespace_as_suffix is not supported");
          break;
        case kByteFallback: byte_fallback_ = field.value != 0; break;
        case kUnkSurface: facts_.unk_surface = name_field(field); break;
        case kBosPiece: bos_ = name_field(field); break;
        case kEosPiece: eos_ = name_field(field); break;
        case kPadPiece: pad_ = name_field(field); break;
        default: break;
      }
    }
  }

  std::string name_field(const WireField& field) const {
    expect(field, WireType::kBytes, "a piece name in the trainer spec");
    if (field.bytes.size() > kLongestPiece || first_invalid_utf8(field.bytes)) {
      bad("a piece name in the trainer spec is too long or not valid UTF-8");
    }
    return std::string(field.bytes);
  }

  void normalizer(const WireReader& outer, const WireField& message) {
    expect(message, WireType::kBytes, "the normalizer spec");
    WireReader reader = outer.inside(message);
    WireField field;
    while (reader.next(field)) {
      if (field.number == kCharsMap) {
        expect(field, WireType::kBytes, "the normalizer's character map");
        chars_map(field.bytes);
      }
      if (field.number == kDummyPrefix) dummy_prefix_ = field.value != 0;
      if (field.number == kRemoveExtraSpaces) remove_spaces_ = field.value != 0;
    }
  }

  void denormalizer(const WireReader& outer, const WireField& message) {
    expect(message, WireType::kBytes, "the denormalizer spec");
    WireReader reader = outer.inside(message);
    WireField field;
    while (reader.next(field)) {
      if (field.number == kCharsMap && !field.bytes.empty()) bad("denormalizers are not supported");
    }
  }

  // u32 size of the trie in bytes, the trie (u32 units of a darts double array), then NUL-ended
  // replacement strings that the trie's leaves point into. A walk goes from unit i to
  // (i ^ offset(i)) ^ byte, so that whole blocks of 256 units must exist.
  void chars_map(std::string_view map) {
    has_chars_map_ = !map.empty();
    if (map.empty()) return;
    const auto word = [&](size_t at) {
      uint32_t value = 0;
      for (size_t i = 0; i < 4; ++i)
        value |= uint32_t{static_cast<uint8_t>(map[at + i])} << (8 * i);
      return value;
    };
    if (map.size() < 4) bad("the normalizer's character map has {} bytes", map.size());
    const uint64_t trie_bytes = word(0);
    if (trie_bytes % 4 != 0 || trie_bytes < 1024 || trie_bytes >= map.size() - 4) {
      bad("the normalizer's trie says {} bytes in a map of {}", trie_bytes, map.size());
    }
    const uint64_t units = trie_bytes / 4;
    const uint64_t texts = map.size() - 4 - trie_bytes;
    if (map.back() != '\0') bad("the normalizer's replacements don't end in NUL");
    for (uint64_t i = 0; i < units; ++i) {
      const uint32_t unit = word(4 + 4 * i);
      if (unit >> 31 != 0) {
        if ((unit & 0x7fffffffU) >= texts) bad("trie unit {}: value out of range", i);
        continue;
      }
      const uint64_t offset = uint64_t{unit >> 10} << ((unit & 0x200U) >> 6);
      if (((i ^ offset) | 0xff) >= units) bad("trie unit {}: offset out of range", i);
    }
  }

  int64_t control_id(const std::string& text) const {
    const int64_t id = ids_.find(text);
    const bool control = id >= 0 && facts_.types[static_cast<size_t>(id)] == PieceType::kControl;
    return control ? id : -1;
  }

  void conclude() {
    if (facts_.types.empty()) bad("no pieces in it");
    if (facts_.unk_id < 0) bad("no piece is 'unknown' (<unk>)");
    if (kind_ != kUnigram && kind_ != kBpe) bad("model_type {}; only 1 (unigram), 2 (BPE)", kind_);
    for (size_t value = 0; byte_fallback_ && value < has_byte_.size(); ++value) {
      if (!has_byte_[value]) bad("byte_fallback without the piece <0x{:02X}>", value);
    }
    facts_.bos_id = control_id(bos_);
    facts_.eos_id = control_id(eos_);
    facts_.pad_id = control_id(pad_);
    facts_.drops_first_space = dummy_prefix_ || remove_spaces_;
    facts_.is_plain_bpe = kind_ == kBpe && !remove_spaces_ && !has_chars_map_;
    facts_.lines_are_independent =
        !dummy_prefix_ && !remove_spaces_ && !has_chars_map_ && !piece_crosses_line_;
  }

  std::string name_;
  ModelFacts facts_;
  PieceTable ids_;
  std::array<bool, 256> has_byte_ = {};
  std::string bos_ = "<s>";
  std::string eos_ = "</s>";
  std::string pad_ = "<pad>";
  uint64_t kind_ = kUnigram;
  bool byte_fallback_ = false;
  bool dummy_prefix_ = true;  // the format's defaults
  bool remove_spaces_ = true;
  bool has_chars_map_ = false;
  bool piece_crosses_line_ = false;
};

}  // namespace

ModelFacts check_model(std::string_view bytes, const std::string& name) {
  return Checker(name).check(bytes);
}

std::string write_model(const ModelSpec& spec) {
  std::string model;
  std::string message;
  bool byte_fallback = false;
  for (const ModelPiece& piece : spec.pieces) {
    message.clear();
    put_bytes_field(message, kText, piece.text);
    put_float_field(message, kScore, piece.score);
    put_varint_field(message, kType, static_cast<uint64_t>(piece.type));
    put_bytes_field(model, kPieces, message);
    byte_fallback = byte_fallback || piece.type == PieceType::kByte;
  }
  message.clear();
  put_varint_field(message, kModelType, kBpe);
  put_varint_field(message, kByteFallback, byte_fallback ? 1 : 0);
  const auto put_special = [&](int64_t id, uint32_t id_field, uint32_t name_field) {
    put_varint_field(message, id_field, static_cast<uint64_t>(id));  // -1 as int32 sign-extends
    if (id >= 0) put_bytes_field(message, name_field, spec.pieces[static_cast<size_t>(id)].text);
  };
  put_special(spec.unk_id, kUnkId, kUnkPiece);
  put_special(spec.bos_id, kBosId, kBosPiece);
  put_special(spec.eos_id, kEosId, kEosPiece);
  put_special(spec.pad_id, kPadId, kPadPiece);
  put_bytes_field(model, kTrainer, message);
  message.clear();
  put_bytes_field(message, kNormalizerName, "identity");
  put_varint_field(message, kDummyPrefix, spec.add_dummy_prefix ? 1 : 0);
  put_varint_field(message, kRemoveExtraSpaces, 0);
  put_varint_field(message, kEscapeSpaces, 1);
  put_bytes_field(model, kNormalizer, message);
  return model;
}

}  // namespace mt::data
