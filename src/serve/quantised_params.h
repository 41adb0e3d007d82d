// `quantization` and `save_quantized_params_path`: the weights of a run in blocks, and a file of
// them.
#pragma once

#include <memory>

#include "config/config.h"
#include "models/gemma3/session.h"

namespace mt::serve {

// Throws kConfig where the keys don't go together, and kIo where the file can't be written: both
// before anything is opened.
void check_quantization_keys(const config::Config& config);
// That, and kConfig where the devices can't compute with blocks.
void check_quantization(const config::Config& config, bool one_cpu);

// load_parameters_path, opened and checked against the model, as the keys ask for it; null: random
// weights are wanted. Saving is done when this returns, and the file is what is read then.
std::unique_ptr<models::gemma3::WeightSource> open_params_of(
    const models::gemma3::Gemma3Model& model, const config::Config& config);

}  // namespace mt::serve
