#include "models/gemma3/decoder_layer.h"

#include <cmath>

#include "sharding/axes.h"

namespace mt::models::gemma3 {
namespace {

namespace axes = sharding::axes;
using ir::Value;

layers::AttentionConfig attention_config(const Gemma3Config& c, const ModelOptions& o,
                                         bool is_global) {
  const double scalar =
      c.query_pre_attn_scalar > 0 ? c.query_pre_attn_scalar : static_cast<double>(c.head_dim);
  layers::AttentionConfig a;
  a.emb_dim = c.emb_dim;
  a.num_query_heads = c.num_query_heads;
  a.num_kv_heads = c.num_kv_heads;
  a.head_dim = c.head_dim;
  a.query_scale = 1 / std::sqrt(scalar);
  a.window = is_global ? 0 : c.sliding_window_size;
  a.norm_epsilon = c.normalization_layer_epsilon;
  a.weight_dtype = o.weight_dtype;
  a.kind = o.attention;
  a.flash = o.flash;
  a.cache = o.cache;
  return a;
}

}  // namespace

Gemma3DecoderLayer::Gemma3DecoderLayer(const Gemma3Config& c, const ModelOptions& o, bool is_global,
                                       std::shared_ptr<const nnx::Partitioner> partitioner)
    : pre_self_attention_norm_(c.emb_dim, c.normalization_layer_epsilon, o.weight_dtype),
      post_self_attention_norm_(c.emb_dim, c.normalization_layer_epsilon, o.weight_dtype),
      pre_ffw_norm_(c.emb_dim, c.normalization_layer_epsilon, o.weight_dtype),
      post_ffw_norm_(c.emb_dim, c.normalization_layer_epsilon, o.weight_dtype),
      self_attention_(attention_config(c, o, is_global), partitioner),
      mlp_(c.emb_dim, c.mlp_dim, o.dropout_rate, o.weight_dtype, partitioner),
      is_global_(is_global),
      record_metrics_(o.record_internal_nn_metrics),
      dropout_rate_(o.dropout_rate),
      partitioner_(std::move(partitioner)) {
  for (layers::RMSNorm* norm :
       {&pre_self_attention_norm_, &post_self_attention_norm_, &pre_ffw_norm_, &post_ffw_norm_}) {
    norm->cpu_kernel = o.cache.cpu_kernels;
  }
}

void Gemma3DecoderLayer::visit(nnx::Visitor& v) {
  v("pre_self_attention_norm", pre_self_attention_norm_);
  v("self_attention", self_attention_);
  v("post_self_attention_norm", post_self_attention_norm_);
  v("pre_ffw_norm", pre_ffw_norm_);
  v("mlp", mlp_);
  v("post_ffw_norm", post_ffw_norm_);
}

Value Gemma3DecoderLayer::operator()(Value x_bld, const LayerInputs& in, nnx::Rngs* rngs) {
  const auto constrain = [&](Value x) {
    return partitioner_->constrain(
        x, {axes::activation_batch, axes::activation_norm_length, axes::activation_embed});
  };
  x_bld = ir::checkpoint_name(constrain(x_bld), "decoder_layer_input");
  const layers::RopeTable& rope = is_global_ ? in.global_rope : in.local_rope;
  const layers::CacheView* cache = is_global_ ? in.global_cache : in.local_cache;
  const Value normed = pre_self_attention_norm_(x_bld);
  const Value attended = cache != nullptr ? self_attention_.with_cache(normed, *cache, rope)
                                          : self_attention_(normed, in.segment_ids_bl, rope);
  x_bld = constrain(x_bld + post_self_attention_norm_(attended));
  Value out = x_bld + post_ffw_norm_(mlp_(pre_ffw_norm_(x_bld), rngs));
  out = constrain(layers::dropout(out, dropout_rate_, rngs));  // on the sum, as MaxText
  if (record_metrics_) {
    const Value f = ir::cast(out, DType::kF32);
    const auto count = static_cast<double>(element_count(f.shape()));
    const Value average = ir::sum_all(f) / count;
    sow("activation_mean", average);
    sow("activation_stdev", ir::sqrt(ir::sum_all(ir::square(f - average)) / count));
    const Value is_zero = ir::compare(f, ir::Direction::kEq, ir::zeros_like(f));
    sow("activation_fraction_zero", ir::sum_all(ir::cast(is_zero, DType::kF32)) / count);
  }
  return out;
}

}  // namespace mt::models::gemma3
