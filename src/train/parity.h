// Comparison with a reference run in a folder: goldens.json (args, losses, learning rates),
// params.safetensors, batches.safetensors, logits.safetensors, grads_packed.safetensors and
// adamw_steps.safetensors, as tests/golden/maxtext/README.md describes.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace mt::train {

struct ParityRow {
  std::string what;  // "logits packed", "gradient decoder/...", "loss of step 3"
  double difference = 0;
  double limit = 0;
  std::string detail;                                  // how the difference is measured
  bool passed() const { return difference <= limit; }  // false for NaN
};

struct ParityLimits {
  double logits = 2e-5;            // largest absolute difference at real positions
  double gradient = 1e-4;          // relative, by norm, each tensor
  double loss = 1e-5;              // absolute
  double parameter_change = 0.02;  // relative, by norm, each tensor
};

// Runs one layout of this program. `overrides` are key=value words that replace the reference's:
// scan_layers, attention, ici_*_parallelism, ...  Throws kIo or kConfig for a folder that isn't
// one.
std::vector<ParityRow> compare_with_reference(const std::string& folder,
                                              const std::vector<std::string>& overrides,
                                              const ParityLimits& limits = {});

}  // namespace mt::train
