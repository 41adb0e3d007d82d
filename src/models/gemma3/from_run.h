// The model's sizes and the way it is run, from the run's configuration.
#pragma once

#include "config/config.h"
#include "models/gemma3/config.h"
#include "models/gemma3/options.h"

namespace mt::models::gemma3 {

Gemma3Config sizes_from(const config::Config& config);
// Throws kConfig for unknown policies and attention names.
ModelOptions options_from(const config::Config& config);

}  // namespace mt::models::gemma3
