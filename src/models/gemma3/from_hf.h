// Gemma 3's sizes from a Hugging Face config.json.
#pragma once

#include "base/json.h"
#include "models/gemma3/config.h"
#include "models/gemma3/source_numbers.h"

namespace mt::models::gemma3 {

// Accepts the text model's file or a multimodal one (text_config). Precedence: layer_types, then
// (_)sliding_window_pattern, then 6; rope_parameters, then rope_theta, rope_local_base_freq and
// rope_scaling. Absent keys take Gemma3TextConfig's defaults. Both "gelu" and "gelu_pytorch_tanh"
// mean the tanh form. 262208 rows (64 image placeholders) count as 262144.
// Throws kConfig naming the key for anything that this Gemma 3 can't be.
Gemma3Config config_from_hf(const Json& json);

// All of them: what the file does not state has Gemma3TextConfig's default. `folder` is the file's.
std::vector<SourceNumber> numbers_from_hf(const Json& json, const std::string& folder);

}  // namespace mt::models::gemma3
