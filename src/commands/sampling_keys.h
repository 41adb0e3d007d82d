// decode_sampling_*, decode_logit_bias and decode_top_log_probs as one request's settings.
#pragma once

#include "config/config.h"
#include "serve/sampling.h"

namespace mt::commands {

// Throws kConfig, naming the key, for settings that contradict each other or a bias that can't be
// read.
serve::Sampling sampling_from(const config::Config& config);

}  // namespace mt::commands
