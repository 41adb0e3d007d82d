// Numbers of a foreign file that no tensor's shape shows: with others than the run's, its weights
// would load and compute something else than they were trained for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/gemma3/config.h"

namespace mt::models::gemma3 {

struct SourceNumber {
  std::string place;      // "model.gguf: gemma3.rope.freq_base"
  std::string_view ours;  // "rope_max_timescale"
  double value = 0;
};

// The number that the run's key `ours` names.
double number_of(const Gemma3Config& config, std::string_view ours);

// Throws kConfig naming the first place that differs from the run, with both values; equal within
// float32's precision is equal.
void check_source_numbers(const std::vector<SourceNumber>& numbers, const Gemma3Config& run);

}  // namespace mt::models::gemma3
