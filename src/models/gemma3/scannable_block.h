// A run of Gemma 3 layers in the attention pattern (five local, one global): the body of the scan
// over stacked blocks, and, shorter and unstacked, the remainder.
#pragma once

#include <optional>

#include "models/gemma3/decoder_layer.h"

namespace mt::models::gemma3 {

class Gemma3ScannableBlock final : public nnx::Module {
 public:
  Gemma3ScannableBlock(const Gemma3Config& config, const ModelOptions& options,
                       int64_t num_of_layers, std::shared_ptr<const nnx::Partitioner> partitioner);
  void visit(nnx::Visitor& v) override { v("layers", layers_); }
  // Each layer is run again in the backward pass, but for what options.saved_tags keep.
  ir::Value operator()(ir::Value x_bld, const LayerInputs& in, nnx::Rngs* rngs);

 private:
  std::vector<std::unique_ptr<Gemma3DecoderLayer>> layers_;  // layers_0, layers_1, ...
  std::vector<std::string> saved_tags_;
};

// One layer under remat. `rngs` may be null.
ir::Value run_layer(Gemma3DecoderLayer& layer, const std::vector<std::string>& saved_tags,
                    ir::Value x_bld, const LayerInputs& in, nnx::Rngs* rngs);

}  // namespace mt::models::gemma3
