// Rules between keys (limits of single keys stand in the table).
#pragma once

#include "config/config.h"

namespace mt::config {

// Throws kConfig naming the keys and their values.
void validate(const Config& config);

}  // namespace mt::config
