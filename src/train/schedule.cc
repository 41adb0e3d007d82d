#include "train/schedule.h"

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace mt::train {
namespace {

float warmup_rate(float peak, int64_t step, int64_t steps) {
  const float left = 1.0F - static_cast<float>(step) / static_cast<float>(steps);
  return (0.0F - peak) * left + peak;
}

// The angle is in double, as MaxText's is for a step that Python counts.
float cosine_rate(double peak, double last, int64_t step, int64_t steps) {
  const double done = steps > 1 ? static_cast<double>(step) / static_cast<double>(steps - 1) : 1.0;
  const float a = 0.5F * (std::cos(static_cast<float>(std::numbers::pi * done)) + 1.0F);
  return static_cast<float>(peak) * a + static_cast<float>(last) * (1.0F - a);
}

}  // namespace

float learning_rate_at(const ScheduleConfig& config, int64_t step) {
  if (config.schedule_steps < 1) {
    throw fail(ErrorKind::kConfig, "learning_rate_schedule_steps={}: must be at least 1",
               config.schedule_steps);
  }
  MT_CHECK(step >= 0);
  const auto warmup = static_cast<int64_t>(static_cast<double>(config.schedule_steps) *
                                           config.warmup_steps_fraction);
  if (step >= config.schedule_steps) return 0.0F;
  if (step < warmup) return warmup_rate(static_cast<float>(config.learning_rate), step, warmup);
  return cosine_rate(config.learning_rate, config.learning_rate * config.final_fraction,
                     step - warmup, config.schedule_steps - warmup);
}

}  // namespace mt::train
