// What a training step takes from the run's configuration.
#pragma once

#include <memory>

#include "config/config.h"
#include "data/batch.h"
#include "nnx/optimizer.h"
#include "train/memory.h"
#include "train/step.h"

namespace mt::train {

data::BatchSizes batch_rows_from(const config::Config& config, int64_t devices);

// Throws kConfig where the mesh doesn't divide rows or length.
StepOptions step_options_from(const config::Config& config, const nnx::Partitioner& partitioner);

std::unique_ptr<nnx::Optimizer> make_optimizer(const config::Config& config,
                                               models::gemma3::Gemma3Model& model);

MemorySettings memory_settings_from(const config::Config& config);

}  // namespace mt::train
