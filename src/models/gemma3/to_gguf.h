// A model's weights as a GGUF file of llama.cpp's gemma3 architecture.
#pragma once

#include <string>

#include "checkpoint/gguf_write.h"
#include "models/gemma3/weights.h"

namespace mt::models::gemma3 {

// general.* and gemma3.*: what config_from_gguf and other readers want. `file_type` is llama.cpp's
// number of the kind that most matrices have (7: Q8_0, 2: Q4_0).
checkpoint::GgufMetadata gguf_metadata(const Gemma3Config& config, int64_t file_type);

// Norms as float32, matrices as source.stored() has them; one in memory at a time. The source's
// table must not be multiplied. Returns the file's size; throws kIo, and then nothing is left.
size_t write_gguf(const std::string& path, const WeightSource& source, const Gemma3Config& config,
                  const checkpoint::GgufMetadata& metadata);

}  // namespace mt::models::gemma3
