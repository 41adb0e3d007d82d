// The training step: loss, gradients, clipping, update. One pure program; everything else is the
// trainer's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nnx/jit.h"
#include "nnx/optimizer.h"
#include "train/loss.h"

namespace mt::train {

// Another way from tokens, positions and segment ids to the normed last hidden state over the same
// variables: tests/linen/ has one.
using HiddenFunction =
    std::function<ir::Value(models::gemma3::Gemma3Model& model, ir::Value tokens_bl,
                            ir::Value positions_bl, ir::Value segment_ids_bl, nnx::Rngs* rngs)>;

struct StepOptions {
  LossOptions loss;
  HiddenFunction hidden;   // empty: the model's own
  int64_t batch_rows = 0;  // global rows of one step, all microbatches together
  int64_t length = 0;      // L
  int64_t gradient_accumulation_steps = 1;
  double gradient_clipping_threshold = 1.0;  // global norm; 0: off
  DType grad_dtype = DType::kF32;
  uint64_t dropout_seed = 0;
  bool enable_dropout = true;
  bool donate = true;  // the step overwrites the state's arrays instead of making new ones
};

// Results of a step, in the order of the program's one float32 vector.
enum StepMetric : size_t {
  kLoss,
  kTotalWeights,
  kRawGradNorm,
  kGradNorm,
  kParamNorm,
  kZLoss,
  kStepMetricCount
};

// The batch's arrays: inputs, targets, inputs_position, inputs_segmentation, targets_segmentation
// (s32 [B, L]), sharded along the batch.
std::vector<nnx::Input> batch_inputs(const StepOptions& options,
                                     const nnx::Partitioner& partitioner);

// Inputs: the batch, learning_rate (f32 scalar), step (s32 scalar). Results: the metrics vector,
// then what the layers sow. Updates model and optimizer in place.
std::shared_ptr<const nnx::Traced> trace_train_step(models::gemma3::Gemma3Model& model,
                                                    nnx::Optimizer& optimizer,
                                                    const StepOptions& options,
                                                    std::vector<std::string>* sown_names = nullptr);

// Inputs: the batch. Results: {loss, total_weights} and the gradients of loss = total_loss /
// (total_weights + 1e-8), in the order of state(model).
std::shared_ptr<const nnx::Traced> trace_gradients(models::gemma3::Gemma3Model& model,
                                                   const StepOptions& options);

// Inputs: tokens, positions, segment ids. Result: float32 logits [B, L, V], no dropout.
std::shared_ptr<const nnx::Traced> trace_logits(models::gemma3::Gemma3Model& model,
                                                int64_t batch_rows, int64_t length);

// Inputs: the batch. Result: float32 [B, L] cross-entropy of each target (0 where not counted).
std::shared_ptr<const nnx::Traced> trace_token_losses(models::gemma3::Gemma3Model& model,
                                                      const StepOptions& options);

}  // namespace mt::train
