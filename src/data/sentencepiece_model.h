// The SentencePiece model file (a protobuf, ModelProto): a check of untrusted bytes, done before
// the library sees them because it trusts what it reads (array indices in the normaliser's trie,
// recursion by piece length), and the writing of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mt::data {

enum class PieceType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

inline constexpr size_t kLongestPiece = 4096;               // bytes; Gemma's longest has 93
inline constexpr size_t kLargestModel = size_t{256} << 20;  // bytes
inline constexpr size_t kMostPieces = size_t{1} << 24;

struct ModelFacts {
  std::vector<PieceType> types;  // by id
  int64_t bos_id = -1;
  int64_t eos_id = -1;
  int64_t pad_id = -1;
  int64_t unk_id = -1;
  std::string unk_surface = " \xE2\x81\x87 ";  // what <unk> decodes to
  bool drops_first_space = false;              // decoding drops the dummy prefix
  bool is_plain_bpe = false;                   // BPE that leaves text as it is, but for a prefix
  bool lines_are_independent = false;          // text may be cut where a run of newlines ends
};

// Throws kIo, "NAME: not a usable SentencePiece model: ...", for anything the library can't be
// trusted with: bad wire format, pieces that are empty, too long, equal, with NUL or invalid UTF-8,
// no or two <unk>, incomplete byte pieces, trie offsets out of range, unsupported kinds.
ModelFacts check_model(std::string_view bytes, const std::string& name);

struct ModelPiece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::kNormal;
};

// A BPE model that leaves text as it is (identity normaliser, spaces escaped, no trimming).
// bos_id, eos_id, pad_id: -1 if there is none.
struct ModelSpec {
  std::vector<ModelPiece> pieces;
  int64_t bos_id = -1;
  int64_t eos_id = -1;
  int64_t pad_id = -1;
  int64_t unk_id = -1;
  bool add_dummy_prefix = false;
};
std::string write_model(const ModelSpec& spec);

}  // namespace mt::data
