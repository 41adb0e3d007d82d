#include "train/open_data.h"

#include "base/error.h"
#include "checkpoint/gguf.h"

namespace mt::train {
namespace {

data::GgufVocabulary vocabulary_of(const checkpoint::GgufFile& file) {
  const auto key = [&](const char* name) -> const checkpoint::GgufValue& {
    const auto* value = file.metadata(std::string("tokenizer.ggml.") + name);
    if (value == nullptr) throw fail(ErrorKind::kIo, "{}: no tokenizer.ggml.{}", file.path(), name);
    return *value;
  };
  const auto id = [&](const char* name) -> int64_t {
    const auto* value = file.metadata(std::string("tokenizer.ggml.") + name);
    return value == nullptr ? -1 : value->as_int();
  };
  data::GgufVocabulary v;
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

std::string tokenizer_path(const config::Config& config) {
  if (!config.text("tokenizer_path").empty()) return config.text("tokenizer_path");
  const std::string& weights = config.text("load_parameters_path");
  if (weights.ends_with(".gguf")) return weights;  // it holds its own vocabulary
  throw fail(ErrorKind::kConfig,
             "dataset_type=text needs tokenizer_path: a SentencePiece file, or a GGUF file with a "
             "vocabulary");
}

}  // namespace

data::Tokenizer open_tokenizer(const std::string& path) {
  if (!path.ends_with(".gguf")) return data::Tokenizer::from_file(path);
  const auto file = checkpoint::GgufFile::open(path);
  return data::Tokenizer::from_gguf(vocabulary_of(*file), path);
}

data::Batcher open_data(const config::Config& config, int64_t batch_rows) {
  const int64_t length = config.integer("max_target_length"), vocab = config.integer("vocab_size");
  if (config.text("dataset_type") == "synthetic") {
    return data::Batcher(data::synthetic_batch(batch_rows, length, vocab));
  }
  data::TextSourceOptions source;
  source.paths = config.text("dataset_path");
  if (source.paths.empty()) {
    throw fail(ErrorKind::kConfig,
               "dataset_type=text needs dataset_path: files, folders or patterns");
  }
  source.num_epoch = config.integer("num_epoch");
  source.shuffle = config.flag("enable_data_shuffling");
  source.shuffle_seed = static_cast<uint64_t>(config.integer("data_shuffle_seed"));
  const std::string path = tokenizer_path(config);
  auto tokenizer = std::make_shared<data::Tokenizer>(open_tokenizer(path));
  if (tokenizer->vocab_size() > vocab) {
    throw fail(ErrorKind::kConfig,
               "{} has {} pieces, the model has vocab_size={}: they don't belong together", path,
               tokenizer->vocab_size(), vocab);
  }
  data::BatcherOptions options;
  options.rows = batch_rows;
  options.length = length;
  options.packing = config.flag("packing");
  options.add_bos = config.flag("add_bos");
  options.add_eos = config.flag("add_eos");
  return data::Batcher(data::open_text_source(source), std::move(tokenizer), options);
}

}  // namespace mt::train
