#include "train/from_run.h"

#include "base/error.h"

namespace mt::train {
namespace {

std::unique_ptr<nnx::Transform> transform_from(const config::Config& config) {
  if (config.text("opt_type") == "sgd") return nnx::sgd();
  return nnx::adamw({config.number("adam_b1"), config.number("adam_b2"), config.number("adam_eps"),
                     config.number("adam_eps_root"), config.number("adam_weight_decay")});
}

void check_divides(const config::Config& config, const StepOptions& options,
                   const nnx::Partitioner& partitioner) {
  const auto spec = batch_inputs(options, partitioner)[0].spec;
  const int64_t pieces = sharding::pieces(partitioner.mesh, spec, 0);
  if (options.batch_rows % (pieces * options.gradient_accumulation_steps) != 0) {
    throw fail(ErrorKind::kConfig,
               "per_device_batch_size={} on {} devices makes {} rows a step, which {} batch shards "
               "times gradient_accumulation_steps={} don't divide",
               config.number("per_device_batch_size"), partitioner.mesh.device_count(),
               options.batch_rows, pieces, options.gradient_accumulation_steps);
  }
  const int64_t length_pieces = sharding::pieces(partitioner.mesh, spec, 1);
  if (options.length % length_pieces != 0) {
    throw fail(ErrorKind::kConfig,
               "max_target_length={} is not divisible by the {} devices that split the sequence",
               options.length, length_pieces);
  }
}

}  // namespace

data::BatchSizes batch_rows_from(const config::Config& config, int64_t devices) {
  return data::global_batch_sizes(devices, config.number("per_device_batch_size"),
                                  config.integer("gradient_accumulation_steps"));
}

StepOptions step_options_from(const config::Config& config, const nnx::Partitioner& partitioner) {
  StepOptions options;
  options.batch_rows = batch_rows_from(config, partitioner.mesh.device_count()).to_train;
  options.length = config.integer("max_target_length");
  options.gradient_accumulation_steps = config.integer("gradient_accumulation_steps");
  options.gradient_clipping_threshold = config.number("gradient_clipping_threshold");
  options.grad_dtype = *parse_dtype(config.text("grad_dtype"));
  options.loss.num_vocab_tiling = config.integer("num_vocab_tiling");
  options.loss.z_loss_multiplier = config.number("z_loss_multiplier");
  options.enable_dropout = config.flag("enable_dropout");
  options.dropout_seed = static_cast<uint64_t>(config.integer("init_weights_seed"));
  check_divides(config, options, partitioner);
  return options;
}

std::unique_ptr<nnx::Optimizer> make_optimizer(const config::Config& config,
                                               models::gemma3::Gemma3Model& model) {
  return std::make_unique<nnx::Optimizer>(model, transform_from(config),
                                          nnx::of_kind(nnx::VariableKind::kParam),
                                          parse_dtype(config.text("mu_dtype")));
}

MemorySettings memory_settings_from(const config::Config& config) {
  return {config.text("model_name"),
          config.text("weight_dtype"),
          config.text("remat_policy"),
          config.text("opt_type"),
          config.number("per_device_batch_size"),
          config.integer("max_target_length"),
          config.integer("num_vocab_tiling")};
}

}  // namespace mt::train
