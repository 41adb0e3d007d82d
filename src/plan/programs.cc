#include "plan/programs.h"

#include "models/gemma3/from_run.h"
#include "models/gemma3/session.h"
#include "train/from_run.h"

namespace mt::plan {

TracedProgram trace_train_program(const config::Config& config,
                                  const std::shared_ptr<const nnx::Partitioner>& partitioner) {
  TracedProgram out;
  out.name = "train step";
  out.model = models::gemma3::make_model(config, partitioner);
  out.optimizer = train::make_optimizer(config, *out.model);
  out.traced = train::trace_train_step(*out.model, *out.optimizer,
                                       train::step_options_from(config, *partitioner));
  return out;
}

train::StepFlops step_flops_from(const config::Config& config) {
  return train::step_flops(
      models::gemma3::sizes_from(config), config.number("per_device_batch_size"),
      config.integer("max_target_length"), config.integer("gradient_accumulation_steps"));
}

}  // namespace mt::plan
