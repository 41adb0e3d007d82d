#include "train/loss.h"

#include <cmath>

#include "sharding/axes.h"

namespace mt::train {
namespace {

namespace axes = sharding::axes;
using ir::Value;
using Values = std::vector<Value>;

constexpr int64_t kTileBytes = int64_t{256} << 20;  // float32 logits of one tile, at most

// Tokens as [n, T, t]: n pieces of the batch (one a batch shard, so that every sum over tokens
// stays on its device until the end), T tiles, t tokens a tile; padded with weight 0.
struct Tiling {
  int64_t pieces, tiles, tokens;

  Value split(Value x, int64_t inner) const {
    const int64_t all = x.dim(0) * x.dim(1) / pieces, padded = tiles * tokens;
    Shape shape{pieces, all};
    if (inner > 0) shape.push_back(inner);
    Value flat = ir::reshape(x, shape);
    std::vector<int64_t> low(shape.size(), 0), high = low;
    high[1] = padded - all;
    flat = ir::pad(flat, 0, low, high);
    Shape tiled{pieces, tiles, tokens};
    if (inner > 0) tiled.push_back(inner);
    return ir::reshape(flat, tiled);
  }
  Value join(Value tiled, const Shape& shape) const {  // the inverse of split, for [n, T, t, D]
    const int64_t all = shape[0] * shape[1] / pieces;
    const Value flat = ir::reshape(tiled, {pieces, tiles * tokens, shape[2]});
    return ir::reshape(ir::slice_axis(flat, 1, 0, all), shape);
  }
};

struct TileResult {
  Value loss, z_loss;  // f32 scalars
  Value d_hidden;      // [n, t, D]
  Value d_table;       // f32 [n, V, D]
};

class Tile {
 public:
  Tile(const nnx::Partitioner& partitioner, double z, double scale)
      : partitioner_(partitioner), z_(z), scale_(scale) {}

  TileResult run(Value hidden_ntd, Value table_vd, Value targets_nt, Value weights_nt) const {
    Value logits = ir::einsum("ntd,vd->ntv", hidden_ntd, table_vd, DType::kF32) * scale_;
    logits = constrain(logits, axes::activation_vocab);
    const Value top = ir::reduce_max(logits, {-1}, true);
    const Value p = ir::exp(logits - top);
    const Value sum = ir::reduce_sum(p, {-1}, true);
    const Value lse = ir::log(sum) + top;  // [n, t, 1]
    const Value column = ir::iota(*logits.graph, DType::kS32, logits.shape(), 2);
    const Value hit = ir::compare(column, ir::Direction::kEq, ir::expand_dims(targets_nt, -1));
    const Value zero = ir::zeros_like(logits);
    const Value weight = ir::expand_dims(weights_nt, -1);
    const Value target = ir::reduce_sum(ir::select(hit, logits, zero), {-1}, true);
    const Value z_loss = ir::square(lse) * z_ * weight;
    TileResult out;
    out.z_loss = ir::sum_all(z_loss);
    out.loss = ir::sum_all((lse - target) * weight) + out.z_loss;
    const Value slope = (lse * (2 * z_) + 1.0) / sum * weight;  // of p
    const Value onehot = ir::select(hit, ir::broadcast_to(weight, logits.shape()), zero);
    const Value d_logits = ir::cast((p * slope - onehot) * scale_, hidden_ntd.dtype());
    out.d_hidden = constrain(ir::einsum("ntv,vd->ntd", d_logits, table_vd), "");
    out.d_table =
        partitioner_.constrain(ir::einsum("ntv,ntd->nvd", d_logits, hidden_ntd, DType::kF32),
                               {axes::activation_embed_and_logits_batch, axes::vocab, ""});
    return out;
  }

 private:
  Value constrain(Value x, std::string_view last) const {
    return partitioner_.constrain(x, {axes::activation_embed_and_logits_batch, "", last});
  }
  const nnx::Partitioner& partitioner_;
  double z_, scale_;
};

// {total loss, total z-loss, d hidden [B, L, D], d table f32 [n, V, D]}
Values all_tiles(const Tile& tile, const Tiling& tiling, const Shape& hidden_shape, Value hidden,
                 Value table, Value targets, Value weights) {
  ir::Graph& graph = ir::graph_of({hidden, targets});
  if (tiling.tiles == 1) {
    const TileResult r =
        tile.run(ir::squeeze(hidden, 1), table, ir::squeeze(targets, 1), ir::squeeze(weights, 1));
    return {r.loss, r.z_loss, tiling.join(ir::expand_dims(r.d_hidden, 1), hidden_shape), r.d_table};
  }
  const Value zero = ir::full(graph, DType::kF32, {}, 0);
  const Value sum = ir::full(graph, DType::kF32, {tiling.pieces, table.dim(0), table.dim(1)}, 0);
  ir::ScanOptions options;
  options.length = tiling.tiles;
  options.x_axes = {1, 1, 1};
  options.y_axes = {1};
  const Values r = ir::scan({zero, zero, sum}, {hidden, targets, weights}, options,
                            [&](const Values& s) -> Values {
                              const TileResult t = tile.run(s[3], table, s[4], s[5]);
                              return {s[0] + t.loss, s[1] + t.z_loss, s[2] + t.d_table, t.d_hidden};
                            });
  return {r[0], r[1], tiling.join(r[3], hidden_shape), r[2]};
}

}  // namespace

int64_t vocab_tiles(int64_t tokens_per_device, int64_t vocab_size, int64_t num_vocab_tiling) {
  if (num_vocab_tiling > 0) return std::min(num_vocab_tiling, tokens_per_device);
  const int64_t bytes = tokens_per_device * vocab_size * 4;
  return std::clamp<int64_t>((bytes + kTileBytes - 1) / kTileBytes, 1, tokens_per_device);
}

Loss cross_entropy(models::gemma3::Gemma3Model& model, Value hidden_bld, Value targets_bl,
                   Value targets_segmentation_bl, const LossOptions& options) {
  ir::Graph& graph = *hidden_bld.graph;
  const ir::Scope scope(graph, "loss");
  const nnx::Partitioner& partitioner = *model.partitioner();
  const int64_t b = hidden_bld.dim(0), l = hidden_bld.dim(1), d = hidden_bld.dim(2);
  const auto batch = partitioner.spec({std::string(axes::activation_embed_and_logits_batch)});
  int64_t pieces = sharding::pieces(partitioner.mesh, batch, 0);
  if (b % pieces != 0) pieces = 1;
  const int64_t per_device = b * l / pieces, vocab = model.config().vocab_size;
  const int64_t tiles = vocab_tiles(per_device, vocab, options.num_vocab_tiling);
  const Tiling tiling{pieces, tiles, (per_device + tiles - 1) / tiles};

  const Value real = ir::compare(targets_segmentation_bl, ir::Direction::kNe,
                                 ir::zeros_like(targets_segmentation_bl));
  const Value weights = ir::cast(real, DType::kF32);
  const Value tiled_targets = tiling.split(targets_bl, 0), tiled_weights = tiling.split(weights, 0);
  const Tile tile(partitioner, options.z_loss_multiplier, 1 / std::sqrt(static_cast<double>(d)));
  const Shape shape = hidden_bld.shape();
  const Values r = ir::custom_vjp(
      "cross_entropy", {hidden_bld, model.token_embedder.embedding.value},
      [&](const Values& in) {
        const Value table =
            partitioner.constrain(ir::cast(in[1], hidden_bld.dtype()), {axes::vocab, ""});
        return all_tiles(tile, tiling, shape, tiling.split(in[0], d), table, tiled_targets,
                         tiled_weights);
      },
      [](const Values& in, const Values& out, const Values& cotangents) -> Values {
        const Value c = cotangents[0];
        const Value d_table = ir::reduce_sum(out[3], {0});
        return {out[2] * ir::cast(c, out[2].dtype()), ir::cast(d_table * c, in[1].dtype())};
      });
  return {r[0], ir::sum_all(weights), r[1]};
}

}  // namespace mt::train
