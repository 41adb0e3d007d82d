#include "models/gemma3/scannable_block.h"

#include "nnx/transforms.h"

namespace mt::models::gemma3 {

ir::Value run_layer(Gemma3DecoderLayer& layer, const std::vector<std::string>& saved_tags,
                    ir::Value x_bld, const LayerInputs& in, nnx::Rngs* rngs) {
  if (in.local_cache != nullptr) return layer(x_bld, in, rngs);  // nothing goes backwards
  return nnx::remat(layer, saved_tags, {x_bld}, [&](const nnx::Values& v) -> nnx::Values {
    return {layer(v[0], in, rngs)};
  })[0];
}

Gemma3ScannableBlock::Gemma3ScannableBlock(const Gemma3Config& config, const ModelOptions& options,
                                           int64_t num_of_layers,
                                           std::shared_ptr<const nnx::Partitioner> partitioner)
    : saved_tags_(options.saved_tags) {
  for (int64_t i = 0; i < num_of_layers; ++i) {
    layers_.push_back(std::make_unique<Gemma3DecoderLayer>(
        config, options, Gemma3Config::is_global(i), partitioner));
  }
}

ir::Value Gemma3ScannableBlock::operator()(ir::Value x_bld, const LayerInputs& in,
                                           nnx::Rngs* rngs) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    const ir::Scope scope(*x_bld.graph, "layers_" + std::to_string(i));
    std::optional<nnx::Rngs> own;
    if (rngs != nullptr) own = rngs->fork(static_cast<uint32_t>(i));
    x_bld = run_layer(*layers_[i], saved_tags_, x_bld, in, own ? &*own : nullptr);
  }
  return x_bld;
}

}  // namespace mt::models::gemma3
