#include "models/gemma3/from_run.h"

#include "base/error.h"
#include "layers/remat_policy.h"

namespace mt::models::gemma3 {
namespace {

DType dtype_key(const config::Config& config, std::string_view key) {
  const std::optional<DType> dtype = parse_dtype(config.text(key));
  MT_CHECK(dtype.has_value());  // config has checked the name
  return *dtype;
}

// remat_policy=custom: each tag's own key says whether it is kept.
std::vector<std::string> custom_tags(const config::Config& config) {
  std::vector<std::string> saved;
  for (const char* tag : {"query_proj", "key_proj", "value_proj", "qkv_proj", "context", "out_proj",
                          "mlpwi_0", "mlpwi_1", "mlpwi", "mlpwo"}) {
    if (config.text(tag) == "device") saved.emplace_back(tag);
  }
  return saved;
}

}  // namespace

Gemma3Config sizes_from(const config::Config& config) {
  Gemma3Config c;
  c.num_decoder_layers = config.integer("num_decoder_layers");
  c.emb_dim = config.integer("emb_dim");
  c.num_query_heads = config.integer("num_query_heads");
  c.num_kv_heads = config.integer("num_kv_heads");
  c.head_dim = config.integer("head_dim");
  c.mlp_dim = config.integer("mlp_dim");
  c.vocab_size = config.integer("vocab_size");
  c.sliding_window_size = config.integer("sliding_window_size");
  c.query_pre_attn_scalar = config.number("query_pre_attn_scalar");
  c.rope_max_timescale = config.number("rope_max_timescale");
  c.local_rope_max_timescale = config.number("local_rope_max_timescale");
  c.rope_linear_scaling_factor = config.number("rope_linear_scaling_factor");
  c.normalization_layer_epsilon = config.number("normalization_layer_epsilon");
  return c;
}

ModelOptions options_from(const config::Config& config) {
  ModelOptions o;
  o.dtype = dtype_key(config, "dtype");
  o.weight_dtype = dtype_key(config, "weight_dtype");
  o.scan_layers = config.flag("scan_layers");
  o.param_scan_axis = config.integer("param_scan_axis");
  o.attention = layers::parse_attention(config.text("attention"));
  o.flash.block_q = config.integer("sa_block_q");
  const std::string& policy = config.text("remat_policy");
  o.saved_tags = policy == "custom" ? custom_tags(config) : layers::saved_tags(policy);
  o.dropout_rate = config.number("dropout_rate");
  o.record_internal_nn_metrics = config.integer("record_internal_nn_metrics") > 0;
  return o;
}

}  // namespace mt::models::gemma3
