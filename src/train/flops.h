// Floating point operations of a training step, by MaxText 0.2.5's formula (forward and backward,
// recomputation not counted; causal attention counted once, a local layer as S*W - W^2/2).
#pragma once

#include <cstdint>

#include "models/gemma3/config.h"

namespace mt::train {

struct StepFlops {
  double attention_tflops = 0;  // per device and step
  double weight_tflops = 0;
  double total() const { return attention_tflops + weight_tflops; }
};

// per_device_batch_size sequences of max_target_length tokens a device, gradient_accumulation_steps
// times.
StepFlops step_flops(const models::gemma3::Gemma3Config& model, double per_device_batch_size,
                     int64_t max_target_length, int64_t gradient_accumulation_steps = 1);

}  // namespace mt::train
