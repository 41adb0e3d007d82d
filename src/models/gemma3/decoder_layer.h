// One Gemma 3 layer: attention and MLP, each between two norms, on the residual stream.
#pragma once

#include "layers/attention.h"
#include "layers/mlp.h"
#include "models/gemma3/config.h"
#include "models/gemma3/options.h"

namespace mt::models::gemma3 {

// What every layer of one pass shares.
struct LayerInputs {
  ir::Value segment_ids_bl;  // s32
  layers::RopeTable local_rope, global_rope;
  // Of a model with caches, instead of segment ids.
  const layers::CacheView* local_cache = nullptr;
  const layers::CacheView* global_cache = nullptr;
};

class Gemma3DecoderLayer final : public nnx::Module {
 public:
  // `is_global`: full causal attention and the global rope, else the sliding window and the local
  // one.
  Gemma3DecoderLayer(const Gemma3Config& config, const ModelOptions& options, bool is_global,
                     std::shared_ptr<const nnx::Partitioner> partitioner);
  void visit(nnx::Visitor& v) override;
  // x [B, L, D]; `rngs` null: no dropout.
  ir::Value operator()(ir::Value x_bld, const LayerInputs& in, nnx::Rngs* rngs);

 private:
  layers::RMSNorm pre_self_attention_norm_, post_self_attention_norm_, pre_ffw_norm_,
      post_ffw_norm_;
  layers::Attention self_attention_;
  layers::MlpBlock mlp_;
  bool is_global_, record_metrics_;
  double dropout_rate_;
  std::shared_ptr<const nnx::Partitioner> partitioner_;
};

}  // namespace mt::models::gemma3
