// Programs of a configuration as text.
#pragma once

#include <string>

#include "config/config.h"
#include "plan/target.h"
#include "prove/program_text.h"

namespace mt::prove {

enum class Stage : uint8_t { kStableHlo, kOptimized };

// StableHLO text of "train" (the step), "gradients", "logits", "prefill" or "generate". Throws
// kConfig for another name.
std::string stablehlo_of(const config::Config& config, const std::string& program,
                         const plan::Target& target);

// The HLO text that the target's compiler makes of it, constants whole.
std::string optimized_of(const std::string& stablehlo, const plan::Target& target);

ProgramText program_of(const config::Config& config, const std::string& program, Stage stage,
                       const std::string& label);

}  // namespace mt::prove
