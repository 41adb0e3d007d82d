#include "data/open_tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/gguf.h"

namespace mt::data {
namespace {

constexpr int64_t kMostPadding = 1024;  // rows; tables are filled up to multiples of less

// Entries behind the model's last row that no text gives: 4b and larger GGUF files list 64 image
// placeholders, whose rows a text model doesn't have.
void drop_placeholders(GgufVocabulary& v, int64_t vocab_size) {
  constexpr int32_t kControl = 3, kUnused = 5;
  const auto rows = static_cast<size_t>(vocab_size);
  if (v.tokens.size() != v.types.size() || v.tokens.size() != v.scores.size()) return;
  while (v.tokens.size() > rows && (v.types.back() == kControl || v.types.back() == kUnused)) {
    v.tokens.pop_back();
    v.scores.pop_back();
    v.types.pop_back();
  }
}

GgufVocabulary vocabulary_of(const checkpoint::GgufFile& file) {
  const auto key = [&](const char* name) -> const checkpoint::GgufValue& {
    const auto* value = file.metadata(std::string("tokenizer.ggml.") + name);
    if (value == nullptr) throw fail(ErrorKind::kIo, "{}: no tokenizer.ggml.{}", file.path(), name);
    return *value;
  };
  const auto id = [&](const char* name) -> int64_t {
    const auto* value = file.metadata(std::string("tokenizer.ggml.") + name);
    return value == nullptr ? -1 : value->as_int();
  };
  GgufVocabulary v;
  v.model = key("model").as_string();
  v.tokens = key("tokens").as_strings();
  v.scores = key("scores").as_floats();
  for (const int64_t type : key("token_type").as_ints())
    v.types.push_back(static_cast<int32_t>(type));
  v.bos_id = id("bos_token_id");
  v.eos_id = id("eos_token_id");
  v.unk_id = id("unknown_token_id");
  v.pad_id = id("padding_token_id");
  if (const auto* prefix = file.metadata("tokenizer.ggml.add_space_prefix")) {
    v.add_space_prefix = prefix->as_bool();
  }
  return v;
}

}  // namespace

std::string tokenizer_path(const std::string& tokenizer, const std::string& weights) {
  if (!tokenizer.empty()) return tokenizer;
  if (weights.ends_with(".gguf")) return weights;
  if (!weights.empty()) checkpoint::open(weights);  // what is wrong there comes first
  throw fail(ErrorKind::kConfig,
             "no tokenizer: set tokenizer_path to a SentencePiece or GGUF file, or "
             "load_parameters_path to a GGUF file, which holds one");
}

Tokenizer open_tokenizer(const std::string& path, int64_t vocab_size, const EncodeOptions& needs) {
  Tokenizer tokenizer = [&] {
    if (!path.ends_with(".gguf")) return Tokenizer::from_file(path);
    const auto file = checkpoint::GgufFile::open(path);
    GgufVocabulary vocabulary = vocabulary_of(*file);
    drop_placeholders(vocabulary, vocab_size);
    return Tokenizer::from_gguf(vocabulary, path);
  }();
  const int64_t pieces = tokenizer.vocab_size(), padding = vocab_size - pieces;
  if (padding < 0 || padding > std::min(vocab_size / 10, kMostPadding)) {
    throw fail(ErrorKind::kConfig,
               "{} has {} pieces, the model has vocab_size={}: they don't belong together", path,
               pieces, vocab_size);
  }
  const bool lacks_bos = needs.add_bos && tokenizer.bos_id() < 0;
  if (lacks_bos || (needs.add_eos && tokenizer.eos_id() < 0)) {
    throw fail(ErrorKind::kConfig, "{}: the tokenizer has no {} piece; set {}=false", path,
               lacks_bos ? "BOS" : "EOS", lacks_bos ? "add_bos" : "add_eos");
  }
  return tokenizer;
}

std::string padding_note(const Tokenizer& tokenizer, const std::string& path, int64_t vocab_size) {
  const int64_t pieces = tokenizer.vocab_size();
  if (pieces == vocab_size) return "";
  return fmt::format("{} has {} pieces, the model has vocab_size={}: the last {} as padding", path,
                     pieces, vocab_size, vocab_size - pieces);
}

void put_vocabulary(checkpoint::GgufMetadata& metadata, GgufVocabulary v, int64_t vocab_size) {
  constexpr int32_t kUnused = 5;
  for (auto id = static_cast<int64_t>(v.tokens.size()); id < vocab_size; ++id) {
    v.tokens.push_back(fmt::format("[PAD{}]", id));
    v.scores.push_back(-1e4F);
    v.types.push_back(kUnused);
  }
  metadata.text("tokenizer.ggml.model", v.model);
  metadata.text("tokenizer.ggml.pre", "default");
  metadata.texts("tokenizer.ggml.tokens", v.tokens);
  metadata.floats("tokenizer.ggml.scores", v.scores);
  metadata.ints("tokenizer.ggml.token_type", v.types);
  const auto id = [&](const char* name, int64_t value) {
    if (value >= 0) metadata.u32(fmt::format("tokenizer.ggml.{}_token_id", name), value);
  };
  id("bos", v.bos_id);
  id("eos", v.eos_id);
  id("unknown", v.unk_id);
  id("padding", v.pad_id);
  metadata.flag("tokenizer.ggml.add_bos_token", v.bos_id >= 0);
  metadata.flag("tokenizer.ggml.add_eos_token", false);
  metadata.flag("tokenizer.ggml.add_space_prefix", v.add_space_prefix);
}

}  // namespace mt::data
