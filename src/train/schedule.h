// The learning rate of each step: MaxText 0.2.5's cosine schedule.
#pragma once

#include <cstdint>

namespace mt::train {

struct ScheduleConfig {
  double learning_rate = 3e-5;
  double final_fraction = 0.1;         // of learning_rate, reached at the last step of the schedule
  double warmup_steps_fraction = 0.1;  // int(fraction * schedule_steps) steps, from 0
  int64_t schedule_steps = 1;          // >= 1; after them the rate is 0
};

// step counts from 0. Computed in float32 like MaxText's. Step 0 has rate 0 if there is a warm-up.
// Throws kConfig if schedule_steps < 1.
float learning_rate_at(const ScheduleConfig& config, int64_t step);

}  // namespace mt::train
