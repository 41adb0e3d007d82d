// Sizes that a foreign file claims, checked before anything is computed from them.
#pragma once

#include <string_view>

#include "models/gemma3/config.h"

namespace mt::models::gemma3 {

// Throws kConfig, beginning with `where`, naming the first size that no Gemma 3 can have. The other
// numbers, which no memory depends on, are the run's or nothing (check_source_numbers).
void check_source_sizes(const Gemma3Config& config, std::string_view where);

}  // namespace mt::models::gemma3
