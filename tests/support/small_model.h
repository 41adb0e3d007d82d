// Small random Gemma 3 models on the CPU plugin, for tests that cross rooms.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "config/config.h"
#include "models/gemma3/model.h"
#include "models/gemma3/session.h"
#include "nnx/init.h"
#include "sharding/build_mesh.h"
#include "support/run_graph.h"
#include "train/step.h"

namespace mt::testing {

using models::gemma3::Gemma3Config;
using models::gemma3::Gemma3Model;
using models::gemma3::ModelOptions;

inline config::Config config_of(std::vector<std::string> words) {
  return config::Config::load(words, {{"MAXTEXT_CONFIGS", MT_SOURCE_DIR "/configs"}});
}

// A mesh by key=value words ("ici_fsdp_parallelism=4") and MaxText's rules.
inline std::shared_ptr<const nnx::Partitioner> partitioner_of(std::vector<std::string> words = {}) {
  const config::Config config = config_of(std::move(words));
  const int64_t devices = sharding::required_devices(config.parallelism());
  return std::make_shared<nnx::Partitioner>(
      nnx::Partitioner{models::gemma3::mesh_from(config, devices), config.logical_axis_rules()});
}

inline Gemma3Config small_sizes(int64_t layers = 2) {
  Gemma3Config c;
  c.num_decoder_layers = layers;
  c.emb_dim = 16;
  c.num_query_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 8;
  c.mlp_dim = 32;
  c.vocab_size = 64;
  c.sliding_window_size = 4;
  c.rope_linear_scaling_factor = 8;
  return c;
}

inline ModelOptions small_options() {
  ModelOptions o;
  o.dtype = DType::kF32;
  o.attention = layers::AttentionKind::kDotProduct;
  return o;
}

// A model with random weights by seed 0.
struct SmallRun {
  explicit SmallRun(const Gemma3Config& sizes, const ModelOptions& options = small_options(),
                    std::vector<std::string> words = {})
      : partitioner(partitioner_of(std::move(words))),
        devices(client(partitioner->mesh.device_count())),
        model(std::make_unique<Gemma3Model>(sizes, options, partitioner)) {
    nnx::initialize(*model, devices, *partitioner, 0, [&](const std::string& path, int64_t block) {
      return models::gemma3::logical_name(sizes, path, block);
    });
  }
  std::shared_ptr<const nnx::Partitioner> partitioner;
  std::shared_ptr<pjrt::Client> devices;
  std::unique_ptr<Gemma3Model> model;
};

// {inputs, targets, positions, segments, target segments}, s32 [rows, length]; one segment a row.
inline std::vector<Tensor> random_batch(int64_t rows, int64_t length, int64_t vocab,
                                        uint64_t seed = 1) {
  std::vector<Tensor> out(5, Tensor(DType::kS32, {rows, length}));
  for (Tensor& t : out) t = Tensor(DType::kS32, {rows, length});
  const RandomKey key = random_key(seed);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < length; ++i) {
      const auto at = static_cast<size_t>(r * length + i);
      const auto token = [&](int64_t place) {
        return static_cast<int32_t>(random_bits_at(key, static_cast<uint64_t>(r * 1000 + place)) %
                                    static_cast<uint64_t>(vocab));
      };
      out[0].mutable_data<int32_t>()[at] = token(i);
      out[1].mutable_data<int32_t>()[at] = token(i + 1);
      out[2].mutable_data<int32_t>()[at] = static_cast<int32_t>(i);
      out[3].mutable_data<int32_t>()[at] = 1;
      out[4].mutable_data<int32_t>()[at] = 1;
    }
  }
  return out;
}

inline train::StepOptions step_options(int64_t rows, int64_t length) {
  train::StepOptions o;
  o.batch_rows = rows;
  o.length = length;
  return o;
}

// A variable's tensor cut into its logical tensors, one a layer.
inline void add_logical(std::map<std::string, std::vector<float>>& out, const Gemma3Config& sizes,
                        const std::string& path, const nnx::Variable& v, const Tensor& tensor) {
  for (int64_t b = 0; b < (v.stack_axis < 0 ? 1 : v.stack_length); ++b) {
    Tensor part = tensor;
    if (v.stack_axis >= 0) {
      std::vector<int64_t> start(v.type.shape.size(), 0);
      Shape shape = v.type.shape;
      start[static_cast<size_t>(v.stack_axis)] = b;
      shape[static_cast<size_t>(v.stack_axis)] = 1;
      part = tensor.slice(start, shape);
    }
    out[models::gemma3::logical_name(sizes, path, v.stack_axis < 0 ? -1 : b)] =
        values_of<float>(part.cast(DType::kF32));
  }
}

inline std::map<std::string, std::vector<float>> logical_weights(Gemma3Model& model) {
  std::map<std::string, std::vector<float>> out;
  for (const auto& [path, v] : nnx::variables(model)) {
    add_logical(out, model.config(), path, *v, v->array->to_host());
  }
  return out;
}

struct LossAndGradients {
  double loss = 0, weights = 0;
  std::map<std::string, std::vector<float>> gradients;  // by logical name
};

inline LossAndGradients gradients_of(SmallRun& run, const std::vector<Tensor>& batch,
                                     const train::StepOptions& options) {
  auto program = train::trace_gradients(*run.model, options)->lower().compile(run.devices);
  const std::vector<pjrt::Array> results = program(batch);
  LossAndGradients out;
  const Tensor head = results[0].to_host();
  out.loss = static_cast<double>(head.data<float>()[0]);
  out.weights = static_cast<double>(head.data<float>()[1]);
  size_t i = 1;
  for (const auto& [path, v] : nnx::variables(*run.model)) {
    add_logical(out.gradients, run.model->config(), path, *v, results[i++].to_host());
  }
  return out;
}

// ||a - b|| / ||b||
inline double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, norm = 0;
  if (a.size() != b.size()) return NAN;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    error += (x - y) * (x - y);
    norm += y * y;
  }
  return norm == 0 ? std::sqrt(error) : std::sqrt(error / norm);
}

inline void expect_close(const LossAndGradients& a, const LossAndGradients& b, double tolerance) {
  EXPECT_NEAR(a.loss, b.loss, tolerance * std::abs(b.loss));
  EXPECT_EQ(a.weights, b.weights);
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (const auto& [name, expected] : b.gradients) {
    ASSERT_TRUE(a.gradients.contains(name)) << name;
    EXPECT_LE(relative_difference(a.gradients.at(name), expected), tolerance) << name;
  }
}

}  // namespace mt::testing
