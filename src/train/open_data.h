// The run's data by its configuration.
#pragma once

#include "config/config.h"
#include "data/batch.h"

namespace mt::train {

// dataset_type=synthetic or text. Throws kConfig where keys are missing, kIo for files that can't
// be read, and kConfig if the tokenizer has more pieces than the model has rows.
data::Batcher open_data(const config::Config& config, int64_t batch_rows);

}  // namespace mt::train
