// The run's data by its configuration.
#pragma once

#include <memory>
#include <string>

#include "config/config.h"
#include "data/batch.h"
#include "data/tokenizer.h"

namespace mt::train {

// A SentencePiece file, or the vocabulary of a GGUF file. Throws kIo.
data::Tokenizer open_tokenizer(const std::string& path);

// dataset_type=synthetic or text. Throws kConfig where keys are missing, kIo for files that can't
// be read, and kConfig if the tokenizer has more pieces than the model has rows.
data::Batcher open_data(const config::Config& config, int64_t batch_rows);

}  // namespace mt::train
