#include "layers/attention.h"

#include <algorithm>

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
      partitioner_(std::move(partitioner)) {
  query_norm.cpu_kernel = key_norm.cpu_kernel = c.cache.cpu_kernels;
  if (c.cache.rows == 0) return;
  cache = std::make_unique<KVCache>(c.cache, cache_capacity(c), c.num_kv_heads, c.head_dim);
}

int64_t Attention::cache_capacity(const AttentionConfig& c) {
  return c.window > 0 ? std::min(c.window + c.cache.ahead, c.cache.length) : c.cache.length;
}

void Attention::visit(nnx::Visitor& v) {
  v("query", query);
  v("key", key);
  v("value", value);
  v("out", out);
  v("query_norm", query_norm);
  v("key_norm", key_norm);
  v("KVCache_0", cache);
}

Attention::Projections Attention::project(Value x_bld, const RopeTable& rope) const {
  const auto constrain = [&](Value x, std::string_view heads, std::string_view dim) {
    return partitioner_->constrain(
        x, {axes::activation_kv_batch, axes::activation_length_no_exp, heads, dim});
  };
  const std::vector<Value> qkv = project_together(x_bld, {&query, &key, &value});
  Projections p;
  p.q = query_norm.with_rope(qkv[0], rope, config_.query_scale);
  p.k = key_norm.with_rope(qkv[1], rope, 1);
  p.v = qkv[2];
  p.q = ir::checkpoint_name(constrain(p.q, axes::activation_heads, axes::activation_kv),
                            "query_proj");
  p.k = ir::checkpoint_name(constrain(p.k, axes::activation_kv_heads, axes::activation_kv_head_dim),
                            "key_proj");
  p.v = ir::checkpoint_name(constrain(p.v, axes::activation_kv_heads, axes::activation_kv_head_dim),
                            "value_proj");
  return p;
}

Value Attention::project_out(Value context_blnh) const {
  context_blnh = partitioner_->constrain(context_blnh,
                                         {axes::activation_kv_batch, axes::activation_length_no_exp,
                                          axes::activation_heads, axes::activation_kv});
  return ir::checkpoint_name(out(context_blnh), "out_proj");
}

Value Attention::operator()(Value x_bld, Value segment_ids_bl, const RopeTable& rope) const {
  const Projections p = project(x_bld, rope);
  const bool flash =
      config_.kind == AttentionKind::kFlash ||
      (config_.kind == AttentionKind::kAutoselected && x_bld.dim(1) >= kAutoselectLength);
  const AttentionMask mask{segment_ids_bl, config_.window};
  return project_out(flash ? flash_attention(p.q, p.k, p.v, mask, config_.flash)
                           : dot_product_attention(p.q, p.k, p.v, mask));
}

Value Attention::with_cache(Value x_btd, const CacheView& view, const RopeTable& rope) {
  MT_CHECK(cache != nullptr);
  const Projections p = project(x_btd, rope);
  return project_out(attend_cache(*cache, view, p.q, p.k, p.v));
}

}  // namespace mt::layers
