// The "before" of MaxText's move of Gemma 3 from Linen to NNX: decoder layer, scannable block and
// decoder as functions over scopes, their children (norms, attention, MLP) through to_linen, as
// they were. src/models/gemma3 is the "after"; tests/linen_parity_test.cc holds them together.
#pragma once

#include <cmath>
#include <memory>
#include <optional>
#include <string>

#include "linen/scope.h"
#include "models/gemma3/model.h"
#include "sharding/axes.h"

namespace mt::linen {

namespace axes = sharding::axes;

struct Decoder {
  models::gemma3::Gemma3Config config;
  models::gemma3::ModelOptions options;
  std::shared_ptr<const nnx::Partitioner> partitioner;
};

using models::gemma3::LayerInputs;

inline ir::Value rms_norm(const Scope& scope, const std::string& name, const Decoder& d,
                          ir::Value x) {
  const auto norm =
      nnx::to_linen<layers::RMSNorm>(nnx::variable_to_logically_partitioned, x.dim(-1),
                                     d.config.normalization_layer_epsilon, d.options.weight_dtype);
  return scope.module(name, norm, [&](nnx::Module& m) -> nnx::Values {
    return {dynamic_cast<layers::RMSNorm&>(m)(x)};
  })[0];
}

inline ir::Value attention(const Scope& scope, const Decoder& d, bool is_global, ir::Value x,
                           const LayerInputs& in) {
  const models::gemma3::Gemma3Config& c = d.config;
  layers::AttentionConfig a;
  a.emb_dim = c.emb_dim;
  a.num_query_heads = c.num_query_heads;
  a.num_kv_heads = c.num_kv_heads;
  a.head_dim = c.head_dim;
  a.query_scale = 1 / std::sqrt(c.query_pre_attn_scalar > 0 ? c.query_pre_attn_scalar
                                                            : static_cast<double>(c.head_dim));
  a.window = is_global ? 0 : c.sliding_window_size;
  a.norm_epsilon = c.normalization_layer_epsilon;
  a.weight_dtype = d.options.weight_dtype;
  a.kind = d.options.attention;
  a.flash = d.options.flash;
  a.cache = d.options.cache;
  const layers::RopeTable& rope = is_global ? in.global_rope : in.local_rope;
  const layers::CacheView* cache = is_global ? in.global_cache : in.local_cache;
  const auto linen =
      nnx::to_linen<layers::Attention>(nnx::variable_to_logically_partitioned, a, d.partitioner);
  return scope.module("self_attention", linen, [&](nnx::Module& m) -> nnx::Values {
    auto& module = dynamic_cast<layers::Attention&>(m);
    return {cache != nullptr ? module.with_cache(x, *cache, rope)
                             : module(x, in.segment_ids_bl, rope)};
  })[0];
}

inline ir::Value mlp_block(const Scope& scope, const Decoder& d, ir::Value x, nnx::Rngs* rngs) {
  const auto linen = nnx::to_linen<layers::MlpBlock>(
      nnx::variable_to_logically_partitioned, d.config.emb_dim, d.config.mlp_dim,
      d.options.dropout_rate, d.options.weight_dtype, d.partitioner);
  return scope.module("mlp", linen, [&](nnx::Module& m) -> nnx::Values {
    return {dynamic_cast<layers::MlpBlock&>(m)(x, rngs)};
  })[0];
}

inline ir::Value decoder_layer(const Scope& scope, const Decoder& d, bool is_global, ir::Value x,
                               const LayerInputs& in, nnx::Rngs* rngs) {
  const auto constrain = [&](ir::Value v) {
    return d.partitioner->constrain(
        v, {axes::activation_batch, axes::activation_norm_length, axes::activation_embed});
  };
  ir::Value inputs = constrain(x);
  inputs = ir::checkpoint_name(inputs, "decoder_layer_input");
  ir::Value lnx = rms_norm(scope, "pre_self_attention_norm", d, inputs);
  ir::Value attended = attention(scope, d, is_global, lnx, in);
  attended = rms_norm(scope, "post_self_attention_norm", d, attended);
  const ir::Value residual = constrain(inputs + attended);
  ir::Value out = rms_norm(scope, "pre_ffw_norm", d, residual);
  out = mlp_block(scope, d, out, rngs);
  out = rms_norm(scope, "post_ffw_norm", d, out);
  out = residual + out;
  return constrain(layers::dropout(out, d.options.dropout_rate, rngs));
}

inline ir::Value remat_layer(const Scope& scope, const Decoder& d, int64_t index, ir::Value x,
                             const LayerInputs& in, nnx::Rngs* rngs) {
  const bool is_global = models::gemma3::Gemma3Config::is_global(index);
  const auto layer = [&](ir::Value v) { return decoder_layer(scope, d, is_global, v, in, rngs); };
  return in.local_cache != nullptr ? layer(x) : remat(scope, d.options.saved_tags, x, layer);
}

inline ir::Value scannable_block(const Scope& scope, const Decoder& d, int64_t num_of_layers,
                                 ir::Value x, const LayerInputs& in, nnx::Rngs* rngs) {
  for (int64_t i = 0; i < num_of_layers; ++i) {
    std::optional<nnx::Rngs> own;
    if (rngs != nullptr) own = rngs->fork(static_cast<uint32_t>(i));
    x = remat_layer(scope.child("layers_" + std::to_string(i)), d, i, x, in, own ? &*own : nullptr);
  }
  return x;
}

inline ir::Value scanned_layers(const Scope& scope, const Decoder& d, ir::Value x,
                                const LayerInputs& in, nnx::Rngs* rngs) {
  using models::gemma3::kPattern;
  const int64_t blocks = d.config.scanned_blocks(), rest = d.config.remainder_layers();
  std::optional<nnx::Rngs> own;
  if (blocks > 0) {
    const Scope block = scope.child("layers");
    x = scan(block, blocks, d.options.param_scan_axis, x, [&](ir::Value v, ir::Value index) {
      if (rngs != nullptr) own = rngs->fork(index);
      return scannable_block(block, d, kPattern, v, in, own ? &*own : nullptr);
    });
  }
  if (rest > 0) {
    if (rngs != nullptr) own = rngs->fork(static_cast<uint32_t>(blocks));
    x = scannable_block(scope.child("layers_remainder"), d, rest, x, in, own ? &*own : nullptr);
  }
  return x;
}

inline ir::Value unscanned_layers(const Scope& scope, const Decoder& d, ir::Value x,
                                  const LayerInputs& in, nnx::Rngs* rngs) {
  using models::gemma3::kPattern;
  for (int64_t i = 0; i < d.config.num_decoder_layers; ++i) {
    std::optional<nnx::Rngs> own;
    if (rngs != nullptr) {
      own =
          rngs->fork(static_cast<uint32_t>(i / kPattern)).fork(static_cast<uint32_t>(i % kPattern));
    }
    x = remat_layer(scope.child("layers_" + std::to_string(i)), d, i, x, in, own ? &*own : nullptr);
  }
  return x;
}

inline ir::Value decoder(const Scope& scope, const Decoder& d, ir::Value x, const LayerInputs& in,
                         nnx::Rngs* rngs) {
  x = d.options.scan_layers ? scanned_layers(scope, d, x, in, rngs)
                            : unscanned_layers(scope, d, x, in, rngs);
  return layers::dropout(rms_norm(scope, "decoder_norm", d, x), d.options.dropout_rate, rngs);
}

inline LayerInputs layer_inputs(const Decoder& d, ir::Value positions) {
  const models::gemma3::Gemma3Config& c = d.config;
  LayerInputs in;
  in.local_rope =
      layers::rope_table(positions, c.head_dim, c.local_rope_max_timescale, 1, d.options.dtype);
  in.global_rope = layers::rope_table(positions, c.head_dim, c.rope_max_timescale,
                                      c.rope_linear_scaling_factor, d.options.dtype);
  return in;
}

// The first pass: every variable of the decoder, in order, without values.
inline Variables init(const Decoder& d) {
  ir::Graph graph;
  Variables variables;
  variables.init_graph = &graph;
  Decoder whole = d;  // the shape of x doesn't matter, nor do caches' contents
  const ir::Value x = graph.parameter({d.options.dtype, {1, 4, d.config.emb_dim}}, "x");
  const ir::Value positions = graph.parameter({DType::kS32, {1, 4}}, "positions");
  LayerInputs in = layer_inputs(d, positions);
  in.segment_ids_bl = positions;
  whole.partitioner = std::make_shared<nnx::Partitioner>();  // no constraints
  decoder(Scope(variables).child("decoder"), whole, x, in, nullptr);
  variables.init_graph = nullptr;
  for (Entry& e : variables.entries) e.variable.value = {};
  return variables;
}

// The model's forward pass with the decoder above over the model's own variables.
class Before {
 public:
  explicit Before(models::gemma3::Gemma3Model& model)
      : decoder_{model.config(), model.options(), model.partitioner()}, variables_(init(decoder_)) {
    for (auto& [path, v] : nnx::variables(model)) by_path_.emplace_back(path, v);
  }

  ir::Value hidden(models::gemma3::Gemma3Model& model, ir::Value tokens, ir::Value positions,
                   ir::Value segments, nnx::Rngs* rngs) {
    const ir::Value x =
        layers::dropout(model.token_embedder(tokens), decoder_.options.dropout_rate, rngs);
    LayerInputs in = layer_inputs(decoder_, positions);
    in.segment_ids_bl = segments;
    return run(x, in, rngs);
  }

  ir::Value hidden_with_cache(models::gemma3::Gemma3Model& model, ir::Value tokens,
                              const layers::CachePass& pass) {
    const layers::CacheConfig& cache = decoder_.options.cache;
    const int64_t window = decoder_.config.sliding_window_size;
    const ir::Value offset = ir::iota(*tokens.graph, DType::kS32, tokens.shape(), 1);
    LayerInputs in = layer_inputs(decoder_, ir::expand_dims(pass.start_b, 1) + offset);
    const layers::CacheView local =
        layers::view_cache(pass, std::min(window + cache.ahead, cache.length), window);
    const layers::CacheView global = layers::view_cache(pass, cache.length, 0);
    in.local_cache = &local;
    in.global_cache = &global;
    return run(model.token_embedder(tokens), in, nullptr);
  }

  const Variables& variables() const { return variables_; }

 private:
  nnx::Variable& of_model(const std::string& path) {
    for (auto& [name, v] : by_path_) {
      if (name == path) return *v;
    }
    throw fail(ErrorKind::kConfig, "the model has no {}", path);
  }

  ir::Value run(ir::Value x, const LayerInputs& in, nnx::Rngs* rngs) {
    for (Entry& e : variables_.entries) e.variable.value = of_model(e.path).value;
    const ir::Value out = decoder(Scope(variables_).child("decoder"), decoder_, x, in, rngs);
    for (Entry& e : variables_.entries) of_model(e.path).value = e.variable.value;
    return out;
  }

  Decoder decoder_;
  Variables variables_;
  std::vector<std::pair<std::string, nnx::Variable*>> by_path_;
};

}  // namespace mt::linen
