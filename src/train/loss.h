// The training loss: masked cross-entropy over the tied head, with the optional z-loss, in tiles of
// tokens so that the logits of a whole batch never exist at once.
#pragma once

#include "models/gemma3/model.h"

namespace mt::train {

struct LossOptions {
  int64_t num_vocab_tiling =
      0;  // tiles of a device's tokens; 0: as many as keep a tile's logits small
  double z_loss_multiplier = 0;  // adds z * logsumexp(logits)^2 a token
};

struct Loss {
  ir::Value total_loss;     // f32 scalar: sum over tokens, z-loss included
  ir::Value total_weights;  // f32 scalar: number of tokens with targets_segmentation != 0
  ir::Value total_z_loss;   // f32 scalar
};

// xent = logsumexp(logits) - logits[target]. Its gradient is computed together with the value, tile
// by tile: d logits = ((1 + 2 z lse) softmax - onehot) * weight, so no logits are kept or computed
// twice.
Loss cross_entropy(models::gemma3::Gemma3Model& model, ir::Value hidden_bld, ir::Value targets_bl,
                   ir::Value targets_segmentation_bl, const LossOptions& options);

// The number of tiles for this many tokens a device.
int64_t vocab_tiles(int64_t tokens_per_device, int64_t vocab_size, int64_t num_vocab_tiling);

}  // namespace mt::train
