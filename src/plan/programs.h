// The programs that a configuration runs, traced for a target without any of their arrays.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "models/gemma3/model.h"
#include "nnx/jit.h"
#include "nnx/optimizer.h"
#include "train/flops.h"

namespace mt::plan {

struct TracedProgram {
  std::string name;  // "train step"
  std::shared_ptr<const nnx::Traced> traced;
  // What the traced program's variables belong to: must live as long.
  std::unique_ptr<models::gemma3::Gemma3Model> model;
  std::unique_ptr<nnx::Optimizer> optimizer;
};

// Throws kConfig where the mesh doesn't divide the model or the batch.
TracedProgram trace_train_program(const config::Config& config,
                                  const std::shared_ptr<const nnx::Partitioner>& partitioner);

// MaxText's count of the step's operations on one device.
train::StepFlops step_flops_from(const config::Config& config);

}  // namespace mt::plan
