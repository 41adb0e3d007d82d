// Gemma 3: token table, decoder, tied head. Parameter paths are MaxText's:
//   token_embedder/embedding
//   decoder/layers/layers_{0..5}/...            scan_layers: stacked over L/6 blocks
//   decoder/layers_remainder/layers_{0..}/...   scan_layers: the last L%6 layers
//   decoder/layers_{i}/...                      otherwise
//   decoder/decoder_norm/scale
#pragma once

#include <string>

#include "layers/embedding.h"
#include "models/gemma3/scannable_block.h"

namespace mt::models::gemma3 {

class Decoder final : public nnx::Module {
 public:
  Decoder(const Gemma3Config& config, const ModelOptions& options,
          std::shared_ptr<const nnx::Partitioner> partitioner);
  void visit(nnx::Visitor& v) override;
  ir::Value operator()(ir::Value x_bld, const LayerInputs& in, nnx::Rngs* rngs);

 private:
  ir::Value run_scanned(ir::Value x_bld, const LayerInputs& in, nnx::Rngs* rngs);

  Gemma3Config config_;
  ModelOptions options_;
  std::unique_ptr<Gemma3ScannableBlock> layers_, layers_remainder_;    // scan_layers
  std::vector<std::unique_ptr<Gemma3DecoderLayer>> unscanned_layers_;  // otherwise
  layers::RMSNorm decoder_norm_;
};

class Gemma3Model final : public nnx::Module {
 public:
  // Throws kConfig where sizes contradict each other.
  Gemma3Model(const Gemma3Config& config, const ModelOptions& options,
              std::shared_ptr<const nnx::Partitioner> partitioner);
  void visit(nnx::Visitor& v) override;

  // Tokens, positions and segment ids s32 [B, L] -> the normed last hidden state [B, L, D].
  ir::Value hidden(ir::Value tokens_bl, ir::Value positions_bl, ir::Value segment_ids_bl,
                   nnx::Rngs* rngs);
  // A model with caches: tokens s32 [B, T] that follow what the rows hold -> [B, T, D].
  ir::Value hidden_with_cache(ir::Value tokens_bt, const layers::CachePass& pass);
  // float32 logits [B, L, V].
  ir::Value operator()(ir::Value tokens_bl, ir::Value positions_bl, ir::Value segment_ids_bl,
                       nnx::Rngs* rngs = nullptr);

  const Gemma3Config& config() const { return config_; }
  const ModelOptions& options() const { return options_; }
  const std::shared_ptr<const nnx::Partitioner>& partitioner() const { return partitioner_; }
  layers::Embed token_embedder;

 private:
  ir::Value embed(ir::Value tokens_bl, nnx::Rngs* rngs);
  LayerInputs layer_inputs(ir::Value positions_bl) const;

  Gemma3Config config_;
  ModelOptions options_;
  std::shared_ptr<const nnx::Partitioner> partitioner_;
  Decoder decoder_;
};

// The logical tensor (unscanned name) that layer `block` of a variable's stack holds: block 2 of
// "decoder/layers/layers_3/mlp/wo/kernel" is "decoder/layers_15/mlp/wo/kernel". Other variables
// (block -1) keep their name, but for those of the remainder layers.
std::string logical_name(const Gemma3Config& config, const std::string& path, int64_t block);

}  // namespace mt::models::gemma3
