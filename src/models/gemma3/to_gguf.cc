#include "models/gemma3/to_gguf.h"

#include <fmt/core.h>

#include <utility>
#include <vector>

#include "base/error.h"
#include "models/gemma3/weight_names.h"

namespace mt::models::gemma3 {
namespace {

using checkpoint::GgufTensorPlan;

GgufTensorPlan plan_for(const WeightSource& source, const NamedShape& weight) {
  const auto matrix = source.stored(weight.name, weight.shape, std::nullopt);
  std::string name = gguf_from_logical(weight.name);
  if (!matrix) {
    return {std::move(name), checkpoint::find_block_format(std::string_view("F32")), weight.shape};
  }
  MT_CHECK(!matrix->multiplied);
  return {std::move(name),
          checkpoint::find_block_format(static_cast<uint32_t>(matrix->block_type)),
          {matrix->rows, matrix->columns}};
}

}  // namespace

checkpoint::GgufMetadata gguf_metadata(const Gemma3Config& config, int64_t file_type) {
  // No key of a run states it: what Gemma 3 was trained for, without and with scaled positions.
  const int64_t context = config.rope_linear_scaling_factor == 1 ? 32'768 : 131'072;
  checkpoint::GgufMetadata m;
  m.text("general.architecture", "gemma3");
  m.text("general.type", "model");
  m.u32("general.alignment", checkpoint::kGgufAlignment);
  m.u32("general.file_type", file_type);
  m.u32("general.quantization_version", 2);
  const auto whole = [&](const char* key, int64_t value) {
    m.u32(fmt::format("gemma3.{}", key), value);
  };
  const auto number = [&](const char* key, double value) {
    m.f32(fmt::format("gemma3.{}", key), value);
  };
  whole("context_length", context);
  whole("block_count", config.num_decoder_layers);
  whole("embedding_length", config.emb_dim);
  whole("feed_forward_length", config.mlp_dim);
  whole("attention.head_count", config.num_query_heads);
  whole("attention.head_count_kv", config.num_kv_heads);
  whole("attention.key_length", config.head_dim);
  whole("attention.value_length", config.head_dim);
  whole("attention.sliding_window", config.sliding_window_size);
  whole("attention.sliding_window_pattern", kPattern);
  number("attention.layer_norm_rms_epsilon", config.normalization_layer_epsilon);
  number("rope.freq_base", config.rope_max_timescale);
  number("rope.freq_base_swa", config.local_rope_max_timescale);
  if (config.rope_linear_scaling_factor != 1) {
    m.text("gemma3.rope.scaling.type", "linear");
    number("rope.scaling.factor", config.rope_linear_scaling_factor);
  }
  return m;
}

size_t write_gguf(const std::string& path, const WeightSource& source, const Gemma3Config& config,
                  const checkpoint::GgufMetadata& metadata) {
  const std::vector<NamedShape> weights = weight_shapes(config);
  std::vector<GgufTensorPlan> plan;
  for (const NamedShape& weight : weights) plan.push_back(plan_for(source, weight));
  checkpoint::GgufWriter writer(path, metadata, std::move(plan));
  for (const auto& [name, shape] : weights) {
    const auto matrix = source.stored(name, shape, std::nullopt);
    const Tensor tensor =
        matrix ? source.read_stored(name, shape, *matrix) : source.read(name, shape, DType::kF32);
    writer.write(tensor.bytes());
  }
  writer.commit();
  return writer.file_bytes();
}

}  // namespace mt::models::gemma3
