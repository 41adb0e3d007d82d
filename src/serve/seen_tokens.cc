#include "serve/seen_tokens.h"

namespace mt::serve {
namespace {

nnx::Variable table(DType dtype, int64_t rows, int64_t vocab_size) {
  return nnx::Variable(nnx::VariableKind::kCache, {dtype, {rows, vocab_size}}, {"", ""});
}

}  // namespace

SeenTokens::SeenTokens(int64_t rows, int64_t vocab_size)
    : seen(table(DType::kS32, rows, vocab_size)), bias(table(DType::kF32, rows, vocab_size)) {}

void SeenTokens::visit(nnx::Visitor& v) {
  v("seen", seen);
  v("bias", bias);
}

}  // namespace mt::serve
