// Gemma 3's sizes from a GGUF file's metadata.
#pragma once

#include "checkpoint/gguf.h"
#include "models/gemma3/config.h"
#include "models/gemma3/source_numbers.h"

namespace mt::models::gemma3 {

// general.architecture must be gemma3. The vocabulary is the token table's height. Layer pattern 6
// and local theta 10000 are implied by the format; keys that are present and say otherwise are an
// error. Throws kConfig naming the key.
Gemma3Config config_from_gguf(const checkpoint::GgufFile& file);

// Those that the file states.
std::vector<SourceNumber> numbers_from_gguf(const checkpoint::GgufFile& file);

}  // namespace mt::models::gemma3
