#include "layers/attention.h"

#include "base/error.h"
#include "sharding/axes.h"

namespace mt::layers {
namespace {

namespace axes = sharding::axes;
using ir::Value;

constexpr int64_t kAutoselectLength = 128;  // below it, blocks cost more than they save

std::vector<std::string> names(std::initializer_list<std::string_view> list) {
  return {list.begin(), list.end()};
}

DenseGeneral projection(const AttentionConfig& c, int64_t heads, std::string_view head_axis,
                        std::string_view dim_axis) {
  return DenseGeneral("bld,dnh->blnh", c.weight_dtype, {c.emb_dim, heads, c.head_dim},
                      names({axes::embed, head_axis, dim_axis}),
                      nnx::initializers::variance_scaling(c.emb_dim, false));
}

}  // namespace

AttentionKind parse_attention(std::string_view text) {
  if (text == "dot_product") return AttentionKind::kDotProduct;
  if (text == "flash") return AttentionKind::kFlash;
  if (text == "autoselected") return AttentionKind::kAutoselected;
  throw fail(ErrorKind::kConfig, "attention={}: expected dot_product, flash or autoselected", text);
}

Attention::Attention(const AttentionConfig& c, std::shared_ptr<const nnx::Partitioner> partitioner)
    : query(projection(c, c.num_query_heads, axes::q_heads, axes::kv)),
      key(projection(c, c.num_kv_heads, axes::kv_heads, axes::kv_head_dim)),
      value(projection(c, c.num_kv_heads, axes::kv_heads, axes::kv_head_dim)),
      out("blnh,nhd->bld", c.weight_dtype, {c.num_query_heads, c.head_dim, c.emb_dim},
          names({axes::heads, axes::kv, axes::embed}),
          nnx::initializers::variance_scaling(c.num_query_heads * c.head_dim, false)),
      query_norm(c.head_dim, c.norm_epsilon, c.weight_dtype),
      key_norm(c.head_dim, c.norm_epsilon, c.weight_dtype),
      config_(c),
      partitioner_(std::move(partitioner)) {}

void Attention::visit(nnx::Visitor& v) {
  v("query", query);
  v("key", key);
  v("value", value);
  v("out", out);
  v("query_norm", query_norm);
  v("key_norm", key_norm);
}

Value Attention::operator()(Value x_bld, Value segment_ids_bl, const RopeTable& rope) const {
  const auto constrain = [&](Value x, std::string_view heads, std::string_view dim) {
    return partitioner_->constrain(
        x, {axes::activation_kv_batch, axes::activation_length_no_exp, heads, dim});
  };
  Value q = apply_rope(query_norm(query(x_bld)), rope) * config_.query_scale;
  Value k = apply_rope(key_norm(key(x_bld)), rope);
  Value v = value(x_bld);
  q = ir::checkpoint_name(constrain(q, axes::activation_heads, axes::activation_kv), "query_proj");
  k = ir::checkpoint_name(constrain(k, axes::activation_kv_heads, axes::activation_kv_head_dim),
                          "key_proj");
  v = ir::checkpoint_name(constrain(v, axes::activation_kv_heads, axes::activation_kv_head_dim),
                          "value_proj");
  const bool flash =
      config_.kind == AttentionKind::kFlash ||
      (config_.kind == AttentionKind::kAutoselected && x_bld.dim(1) >= kAutoselectLength);
  const AttentionMask mask{segment_ids_bl, config_.window};
  const Value context =
      flash ? flash_attention(q, k, v, mask, config_.flash) : dot_product_attention(q, k, v, mask);
  return ir::checkpoint_name(out(constrain(context, axes::activation_heads, axes::activation_kv)),
                             "out_proj");
}

}  // namespace mt::layers
