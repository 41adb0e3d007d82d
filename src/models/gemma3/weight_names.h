// One table of a layer's weights: MaxText's, Hugging Face's and GGUF's names, and their forms.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/shape.h"
#include "models/gemma3/config.h"

namespace mt::models::gemma3 {

enum class Form { kEmbedding, kNorm, kKernel };

struct Leaf {
  std::string_view maxtext;  // under decoder/layers_<i>/
  std::string_view hf;       // under model.layers.<i>.
  std::string_view gguf;     // under blk.<i>.
  Form form = Form::kNorm;
  int inputs = 0;  // a kernel's leading dimensions that are summed over
  Shape (*shape)(const Gemma3Config& config) = nullptr;
};
std::span<const Leaf> layer_leaves();

// A logical name taken apart.
struct LogicalName {
  Form form = Form::kNorm;
  const Leaf* leaf = nullptr;  // null for the table and the final norm
  int64_t layer = -1;
};
inline constexpr std::string_view kEmbeddingName = "token_embedder/embedding";
inline constexpr std::string_view kFinalNormName = "decoder/decoder_norm/scale";
std::optional<LogicalName> parse_logical_name(std::string_view name);
std::string layer_name(int64_t layer, std::string_view leaf);  // "decoder/layers_3/" + leaf

// The logical name of a foreign tensor; nullopt if it has none.
std::optional<std::string> logical_from_hf(std::string_view name);
std::optional<std::string> logical_from_gguf(std::string_view name);
// The other way; `logical` is a logical name.
std::string gguf_from_logical(std::string_view logical);

// "<number><separator>rest" taken apart; nullopt unless the number is plain decimal below 10^6.
struct NumberedName {
  int64_t number = 0;
  std::string_view rest;
};
std::optional<NumberedName> split_number(std::string_view text, char separator);

}  // namespace mt::models::gemma3
