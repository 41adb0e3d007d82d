// Multi-head attention: projections, query and key norms, rotary embedding, grouped-query attention
// over the sequence or over a cache, output projection.
#pragma once

#include <memory>
#include <string_view>

#include "layers/dot_product_attention.h"
#include "layers/kv_cache.h"
#include "layers/linear.h"
#include "layers/norm.h"
#include "layers/rope.h"
#include "nnx/partition.h"

namespace mt::layers {

enum class AttentionKind : uint8_t { kDotProduct, kFlash, kAutoselected };
// "dot_product", "flash", "autoselected"; throws kConfig for anything else.
AttentionKind parse_attention(std::string_view text);

struct AttentionConfig {
  int64_t emb_dim = 0, num_query_heads = 0, num_kv_heads = 0, head_dim = 0;
  double query_scale = 1;
  int64_t window = 0;  // 0: global
  double norm_epsilon = 1e-6;
  DType weight_dtype = DType::kF32;
  AttentionKind kind = AttentionKind::kAutoselected;
  FlashOptions flash;
  CacheConfig cache;
};

class Attention final : public nnx::Module {
 public:
  Attention(const AttentionConfig& config, std::shared_ptr<const nnx::Partitioner> partitioner);
  void visit(nnx::Visitor& v) override;
  // Over the sequence itself: training, and logits of whole sequences.
  ir::Value operator()(ir::Value x_bld, ir::Value segment_ids_bl, const RopeTable& rope) const;
  // Over the cache and the new tokens, which it then holds: prefill and generation.
  ir::Value with_cache(ir::Value x_btd, const CacheView& view, const RopeTable& rope);

  static int64_t cache_capacity(const AttentionConfig& config);

  DenseGeneral query, key, value, out;
  RMSNorm query_norm, key_norm;
  std::unique_ptr<KVCache> cache;  // null where config.cache has no rows

 private:
  struct Projections {
    ir::Value q, k, v;  // normed, rotated, q scaled
  };
  Projections project(ir::Value x_bld, const RopeTable& rope) const;
  ir::Value project_out(ir::Value context_blnh) const;

  AttentionConfig config_;
  std::shared_ptr<const nnx::Partitioner> partitioner_;
};

}  // namespace mt::layers
