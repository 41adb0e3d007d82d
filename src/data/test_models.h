// For tests: tokenizers, real and tiny.
#pragma once

#include <string>
#include <vector>

#include "data/sentencepiece_model.h"
#include "data/tokenizer.h"

namespace mt::data {

inline std::string deps_file(const std::string& name) { return MT_DEPS "/weights/" + name; }

// <pad> <eos> <bos> <unk> 0..3, user-defined "\n" 4, bytes 5..260, then single letters a-z and the
// space mark, and a few merges.
inline ModelSpec tiny_spec() {
  ModelSpec spec;
  const auto add = [&](const std::string& text, PieceType type, float score = 0) {
    spec.pieces.push_back({text, score, type});
  };
  add("<pad>", PieceType::kControl);
  add("<eos>", PieceType::kControl);
  add("<bos>", PieceType::kControl);
  add("<unk>", PieceType::kUnknown);
  add("\n", PieceType::kUserDefined);
  static const char* const kHex = "0123456789ABCDEF";
  for (int i = 0; i < 256; ++i) {
    add(std::string("<0x") + kHex[i / 16] + kHex[i % 16] + ">", PieceType::kByte);
  }
  for (char c = 'a'; c <= 'z'; ++c)
    add(std::string(1, c), PieceType::kNormal, -100.0F - static_cast<float>(c));
  add("\xE2\x96\x81", PieceType::kNormal, -300);
  add("th", PieceType::kNormal, -1);
  add("the", PieceType::kNormal, -2);
  add("\xE2\x96\x81the", PieceType::kNormal, -3);
  spec.pad_id = 0, spec.eos_id = 1, spec.bos_id = 2, spec.unk_id = 3;
  return spec;
}

inline Tokenizer tiny_tokenizer() {
  return Tokenizer::from_bytes(write_model(tiny_spec()), "tiny");
}

}  // namespace mt::data
