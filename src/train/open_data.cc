#include "train/open_data.h"

#include "base/error.h"
#include "base/log.h"
#include "data/open_tokenizer.h"

namespace mt::train {
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
  data::BatcherOptions options;
  options.rows = batch_rows;
  options.length = length;
  options.packing = config.flag("packing");
  options.add_bos = config.flag("add_bos");
  options.add_eos = config.flag("add_eos");
  const std::string path =
      data::tokenizer_path(config.text("tokenizer_path"), config.text("load_parameters_path"));
  auto tokenizer = std::make_shared<data::Tokenizer>(
      data::open_tokenizer(path, vocab, {.add_bos = options.add_bos, .add_eos = options.add_eos}));
  const std::string note = data::padding_note(*tokenizer, path, vocab);
  if (!note.empty()) log_text(note);
  return data::Batcher(data::open_text_source(source), std::move(tokenizer), options);
}

}  // namespace mt::train
