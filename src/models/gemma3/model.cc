#include "models/gemma3/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "nnx/transforms.h"

namespace mt::models::gemma3 {
namespace {

using ir::Value;

void check(const Gemma3Config& c) {
  const auto positive = [](std::string_view key, int64_t value) {
    if (value <= 0) throw fail(ErrorKind::kConfig, "{}={}: expected a positive number", key, value);
  };
  positive("num_decoder_layers", c.num_decoder_layers);
  positive("emb_dim", c.emb_dim);
  positive("num_query_heads", c.num_query_heads);
  positive("num_kv_heads", c.num_kv_heads);
  positive("head_dim", c.head_dim);
  positive("mlp_dim", c.mlp_dim);
  positive("vocab_size", c.vocab_size);
  positive("sliding_window_size", c.sliding_window_size);
  if (c.num_query_heads % c.num_kv_heads != 0) {
    throw fail(ErrorKind::kConfig, "num_query_heads={} is not a multiple of num_kv_heads={}",
               c.num_query_heads, c.num_kv_heads);
  }
  if (c.head_dim % 2 != 0) {
    throw fail(ErrorKind::kConfig, "head_dim={}: the rotary embedding needs an even size",
               c.head_dim);
  }
}

}  // namespace

Decoder::Decoder(const Gemma3Config& config, const ModelOptions& options,
                 std::shared_ptr<const nnx::Partitioner> partitioner)
    : config_(config),
      options_(options),
      decoder_norm_(config.emb_dim, config.normalization_layer_epsilon, options.weight_dtype) {
  decoder_norm_.cpu_kernel = options.cache.cpu_kernels;
  if (!options.scan_layers) {
    for (int64_t i = 0; i < config.num_decoder_layers; ++i) {
      unscanned_layers_.push_back(std::make_unique<Gemma3DecoderLayer>(
          config, options, Gemma3Config::is_global(i), partitioner));
    }
    return;
  }
  if (config.scanned_blocks() > 0) {
    layers_ = std::make_unique<Gemma3ScannableBlock>(config, options, kPattern, partitioner);
    nnx::stack_layers(*layers_, config.scanned_blocks(), options.param_scan_axis, "layers");
  }
  if (config.remainder_layers() > 0) {
    layers_remainder_ = std::make_unique<Gemma3ScannableBlock>(
        config, options, config.remainder_layers(), partitioner);
  }
}

void Decoder::visit(nnx::Visitor& v) {
  v("layers", layers_);
  v("layers_remainder", layers_remainder_);
  v("layers", unscanned_layers_);
  v("decoder_norm", decoder_norm_);
}

Value Decoder::run_scanned(Value x_bld, const LayerInputs& in, nnx::Rngs* rngs) {
  if (layers_) {
    const ir::Scope scope(*x_bld.graph, "layers");
    x_bld = nnx::scan(*layers_, config_.scanned_blocks(), {x_bld},
                      [&](const nnx::Values& carry, Value index) -> nnx::Values {
                        std::optional<nnx::Rngs> own;
                        if (rngs != nullptr) own = rngs->fork(index);
                        return {(*layers_)(carry[0], in, own ? &*own : nullptr)};
                      })[0];
  }
  if (layers_remainder_) {
    const ir::Scope scope(*x_bld.graph, "layers_remainder");
    std::optional<nnx::Rngs> own;
    if (rngs != nullptr) own = rngs->fork(static_cast<uint32_t>(config_.scanned_blocks()));
    x_bld = (*layers_remainder_)(x_bld, in, own ? &*own : nullptr);
  }
  return x_bld;
}

Value Decoder::operator()(Value x_bld, const LayerInputs& in, nnx::Rngs* rngs) {
  const ir::Scope scope(*x_bld.graph, "decoder");
  if (options_.scan_layers) {
    x_bld = run_scanned(x_bld, in, rngs);
  } else {
    for (size_t i = 0; i < unscanned_layers_.size(); ++i) {
      const ir::Scope layer_scope(*x_bld.graph, "layers_" + std::to_string(i));
      std::optional<nnx::Rngs> own;  // the streams that the scanned layout would use
      if (rngs != nullptr) {
        own = rngs->fork(static_cast<uint32_t>(i / kPattern))
                  .fork(static_cast<uint32_t>(i % kPattern));
      }
      x_bld =
          run_layer(*unscanned_layers_[i], options_.saved_tags, x_bld, in, own ? &*own : nullptr);
    }
  }
  x_bld = decoder_norm_(x_bld);
  return layers::dropout(x_bld, options_.dropout_rate, rngs);
}

Gemma3Model::Gemma3Model(const Gemma3Config& config, const ModelOptions& options,
                         std::shared_ptr<const nnx::Partitioner> partitioner)
    : token_embedder(config.vocab_size, config.emb_dim, options.dtype, options.weight_dtype,
                     partitioner),
      config_((check(config), config)),
      options_(options),
      partitioner_(partitioner),
      decoder_(config, options, partitioner) {}

void Gemma3Model::visit(nnx::Visitor& v) {
  v("token_embedder", token_embedder);
  v("decoder", decoder_);
}

Value Gemma3Model::embed(Value tokens_bl, nnx::Rngs* rngs) {
  const ir::Scope scope(*tokens_bl.graph, "token_embedder");
  return layers::dropout(token_embedder(tokens_bl), options_.dropout_rate, rngs);
}

LayerInputs Gemma3Model::layer_inputs(Value positions_bl) const {
  LayerInputs in;
  in.local_rope = layers::rope_table(positions_bl, config_.head_dim,
                                     config_.local_rope_max_timescale, 1, options_.dtype);
  in.global_rope = layers::rope_table(positions_bl, config_.head_dim, config_.rope_max_timescale,
                                      config_.rope_linear_scaling_factor, options_.dtype);
  return in;
}

Value Gemma3Model::hidden(Value tokens_bl, Value positions_bl, Value segment_ids_bl,
                          nnx::Rngs* rngs) {
  const Value x_bld = embed(tokens_bl, rngs);
  LayerInputs in = layer_inputs(positions_bl);
  in.segment_ids_bl = segment_ids_bl;
  return decoder_(x_bld, in, rngs);
}

Value Gemma3Model::hidden_with_cache(Value tokens_bt, const layers::CachePass& pass) {
  const int64_t window = config_.sliding_window_size, length = options_.cache.length;
  const Value offset = ir::iota(*tokens_bt.graph, DType::kS32, tokens_bt.shape(), 1);
  LayerInputs in = layer_inputs(ir::expand_dims(pass.start_b, 1) + offset);
  const layers::CacheView local =
      layers::view_cache(pass, std::min(window + options_.cache.ahead, length), window);
  const layers::CacheView global = layers::view_cache(pass, length, 0);
  in.local_cache = &local;
  in.global_cache = &global;
  return decoder_(embed(tokens_bt, nullptr), in, nullptr);
}

Value Gemma3Model::operator()(Value tokens_bl, Value positions_bl, Value segment_ids_bl,
                              nnx::Rngs* rngs) {
  return token_embedder.attend(hidden(tokens_bl, positions_bl, segment_ids_bl, rngs));
}

std::string logical_name(const Gemma3Config& config, const std::string& path, int64_t block) {
  const auto rewrite = [&](std::string_view prefix, int64_t base) -> std::string {
    const size_t digits = prefix.size(), slash = path.find('/', digits);
    const int64_t j = std::stoll(path.substr(digits, slash - digits));
    return fmt::format("decoder/layers_{}{}", base + j, path.substr(slash));
  };
  constexpr std::string_view kScanned = "decoder/layers/layers_";
  constexpr std::string_view kRemainder = "decoder/layers_remainder/layers_";
  if (path.starts_with(kScanned)) return rewrite(kScanned, block * kPattern);
  if (path.starts_with(kRemainder)) return rewrite(kRemainder, config.scanned_blocks() * kPattern);
  return path;
}

}  // namespace mt::models::gemma3
