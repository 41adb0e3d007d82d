// What programs of Choice::kFull know of every token of the vocabulary, a row a slot. It exists
// only once a request needs it: 8 bytes a token of the vocabulary and slot.
#pragma once

#include "nnx/module.h"

namespace mt::serve {

class SeenTokens final : public nnx::Module {
 public:
  SeenTokens(int64_t rows, int64_t vocab_size);
  void visit(nnx::Visitor& v) override;

  nnx::Variable seen;  // s32 [B, V], as seen_in()
  nnx::Variable bias;  // f32 [B, V]
};

}  // namespace mt::serve
