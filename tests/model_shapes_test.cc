// The five published models as abstract state (nothing is allocated): counts, names, shapes, axes,
// and how each parameter lies on a mesh.
#include <gtest/gtest.h>

#include "base/json.h"
#include "models/gemma3/from_run.h"
#include "models/gemma3/weights.h"
#include "nnx/jit.h"
#include "nnx/state.h"
#include "support/golden.h"
#include "support/small_model.h"
#include "train/flops.h"

namespace mt {
namespace {

using models::gemma3::Gemma3Config;
using models::gemma3::Gemma3Model;
using testing::config_of;
using testing::error_of;
using testing::partitioner_of;

struct Size {
  const char* name;
  int64_t parameters, layers, scanned_leaves;
};

// 13 leaves a layer of the block and of the remainder, the table and the last norm.
constexpr Size kSizes[] = {{"gemma3-270m", 268'098'176, 18, 2 + 13 * 6},
                           {"gemma3-1b", 999'885'952, 26, 2 + 13 * (6 + 2)},
                           {"gemma3-4b", 3'880'099'328, 34, 2 + 13 * (6 + 4)},
                           {"gemma3-12b", 11'765'788'416, 48, 2 + 13 * 6},
                           {"gemma3-27b", 27'009'002'240, 62, 2 + 13 * (6 + 2)}};

std::unique_ptr<Gemma3Model> model_of(const std::string& name,
                                      std::vector<std::string> words = {}) {
  words.insert(words.begin(), "model_name=" + name);
  const config::Config config = config_of(words);
  return std::make_unique<Gemma3Model>(models::gemma3::sizes_from(config),
                                       models::gemma3::options_from(config), partitioner_of());
}

TEST(FiveSizes, CountsAreExact) {
  for (const Size& size : kSizes) {
    SCOPED_TRACE(size.name);
    const auto scanned = model_of(size.name);
    EXPECT_EQ(scanned->config().parameter_count(), size.parameters);
    const nnx::State state = nnx::eval_shape(*scanned);
    EXPECT_EQ(state.element_count(), size.parameters);
    EXPECT_EQ(state.byte_count(), 4 * size.parameters);
    EXPECT_EQ(static_cast<int64_t>(state.entries.size()), size.scanned_leaves);
    const auto separate = model_of(size.name, {"scan_layers=false"});
    const nnx::State layers = nnx::eval_shape(*separate);
    EXPECT_EQ(layers.element_count(), size.parameters);
    EXPECT_EQ(static_cast<int64_t>(layers.entries.size()), 2 + 13 * size.layers);
    for (const auto& e : layers.entries) EXPECT_EQ(e.variable.array, nullptr);
  }
}

// The unscanned tree is exactly the list that checkpoints are read by.
TEST(FiveSizes, UnscannedTreeIsTheListOfWeights) {
  for (const Size& size : kSizes) {
    SCOPED_TRACE(size.name);
    const auto model = model_of(size.name, {"scan_layers=false"});
    const nnx::State state = nnx::eval_shape(*model);
    const auto weights = models::gemma3::weight_shapes(model->config());
    ASSERT_EQ(state.entries.size(), weights.size());
    for (const auto& weight : weights) {
      const nnx::Variable* v = state.find(weight.name);
      ASSERT_NE(v, nullptr) << weight.name;
      EXPECT_EQ(v->type.shape, weight.shape) << weight.name;
    }
  }
}

TEST(FiveSizes, ScannedNamesShapesAndAxesOf4b) {
  const auto model = model_of("gemma3-4b");
  const nnx::State state = nnx::eval_shape(*model);
  struct Leaf {
    const char* path;
    Shape shape;
    std::vector<std::string> axes;
  };
  const Leaf leaves[] = {
      {"token_embedder/embedding", {262144, 2560}, {"vocab", "embed"}},
      {"decoder/layers/layers_0/self_attention/query/kernel",
       {2560, 5, 8, 256},
       {"embed", "layers", "q_heads", "kv"}},
      {"decoder/layers/layers_5/self_attention/key/kernel",
       {2560, 5, 4, 256},
       {"embed", "layers", "kv_heads", "kv_head_dim"}},
      {"decoder/layers/layers_5/self_attention/value/kernel",
       {2560, 5, 4, 256},
       {"embed", "layers", "kv_heads", "kv_head_dim"}},
      {"decoder/layers/layers_1/self_attention/out/kernel",
       {8, 5, 256, 2560},
       {"heads", "layers", "kv", "embed"}},
      {"decoder/layers/layers_1/self_attention/query_norm/scale", {256, 5}, {"norm", "layers"}},
      {"decoder/layers/layers_1/self_attention/key_norm/scale", {256, 5}, {"norm", "layers"}},
      {"decoder/layers/layers_2/pre_self_attention_norm/scale", {2560, 5}, {"norm", "layers"}},
      {"decoder/layers/layers_2/post_self_attention_norm/scale", {2560, 5}, {"norm", "layers"}},
      {"decoder/layers/layers_2/pre_ffw_norm/scale", {2560, 5}, {"norm", "layers"}},
      {"decoder/layers/layers_2/post_ffw_norm/scale", {2560, 5}, {"norm", "layers"}},
      {"decoder/layers/layers_3/mlp/wi_0/kernel", {2560, 5, 10240}, {"embed", "layers", "mlp"}},
      {"decoder/layers/layers_3/mlp/wi_1/kernel", {2560, 5, 10240}, {"embed", "layers", "mlp"}},
      {"decoder/layers/layers_4/mlp/wo/kernel", {10240, 5, 2560}, {"mlp", "layers", "embed"}},
      {"decoder/layers_remainder/layers_3/mlp/wo/kernel", {10240, 2560}, {"mlp", "embed"}},
      {"decoder/decoder_norm/scale", {2560}, {"norm"}},
  };
  for (const Leaf& leaf : leaves) {
    const nnx::Variable* v = state.find(leaf.path);
    ASSERT_NE(v, nullptr) << leaf.path;
    EXPECT_EQ(v->type.shape, leaf.shape) << leaf.path;
    EXPECT_EQ(v->axes, leaf.axes) << leaf.path;
    EXPECT_EQ(v->type.dtype, DType::kF32) << leaf.path;
  }
  EXPECT_EQ(state.find("decoder/layers_remainder/layers_4/mlp/wo/kernel"), nullptr);
}

TEST(FiveSizes, LogicalNamesCoverEachLayerOnce) {
  for (const Size& size : kSizes) {
    const auto model = model_of(size.name);
    std::map<std::string, int> seen;
    for (const auto& e : nnx::eval_shape(*model).entries) {
      const bool stacked = e.variable.stack_axis >= 0;
      for (int64_t b = 0; b < (stacked ? e.variable.stack_length : 1); ++b) {
        ++seen[models::gemma3::logical_name(model->config(), e.path, stacked ? b : -1)];
      }
    }
    const auto weights = models::gemma3::weight_shapes(model->config());
    ASSERT_EQ(seen.size(), weights.size()) << size.name;
    for (const auto& w : weights) EXPECT_EQ(seen[w.name], 1) << size.name << " " << w.name;
  }
}

// One line a size, mesh and leaf. Layers of a block lie alike, so only the first of each is
// written.
TEST(Sharding, GoldenOfEverySizeAndMesh) {
  const std::vector<std::pair<const char*, std::vector<std::string>>> meshes{
      {"fsdp4", {"ici_fsdp_parallelism=4"}},
      {"fsdp2_tensor2", {"ici_fsdp_parallelism=2", "ici_tensor_parallelism=2"}},
      {"data4", {"ici_fsdp_parallelism=1", "ici_data_parallelism=4"}}};
  Json golden{Json::Object{}};
  for (const auto& [mesh, words] : meshes) {
    const auto partitioner = partitioner_of(words);
    for (const Size& size : kSizes) {
      const auto model = model_of(size.name);
      std::map<std::string, std::string> of_first;
      Json specs{Json::Object{}};
      for (const auto& e : nnx::eval_shape(*model).entries) {
        const std::string spec = to_string(partitioner->spec(e.variable.axes));
        std::string first = e.path;
        const size_t at = first.find("/layers_", first.find("/layers") + 1);
        if (at != std::string::npos) first[at + 8] = '0';
        if (first == e.path) {
          of_first[first] = spec;
          specs.set(e.path, spec);
        }
        EXPECT_EQ(of_first[first], spec) << e.path;
      }
      golden.set(std::string(size.name) + " " + mesh, specs);
    }
  }
  testing::expect_golden("sharding.json", golden.dump(1) + "\n");
}

TEST(Sharding, SizesThatAMeshDoesNotDivideAreRefusedByName) {
  const auto fault = [](const std::vector<std::string>& words,
                        const std::vector<std::string>& mesh) {
    std::vector<std::string> all{"model_name=gemma3-4b", "override_model_config=true"};
    all.insert(all.end(), words.begin(), words.end());
    const std::string text =
        error_of([&] { models::gemma3::make_model(config_of(all), partitioner_of(mesh)); });
    EXPECT_EQ(text.find('\n'), std::string::npos);
    return text;
  };
  EXPECT_EQ(fault({"vocab_size=262145"}, {"ici_fsdp_parallelism=1", "ici_tensor_parallelism=2"}),
            "token_embedder/embedding: axis vocab has size 262145, which is not divisible by mesh "
            "axis tensor of size 2");
  EXPECT_EQ(fault({"base_emb_dim=2562"}, {"ici_fsdp_parallelism=4"}),
            "token_embedder/embedding: axis embed has size 2562, which is not divisible by mesh "
            "axis fsdp of size 4");
  EXPECT_EQ(fault({}, {"ici_fsdp_parallelism=1", "ici_tensor_parallelism=8"}),
            "decoder/layers/layers_0/self_attention/key/kernel: axis kv_heads has size 4, which is "
            "not divisible by mesh axis tensor of size 8");
  EXPECT_EQ(fault({"vocab_size=262145"}, {"ici_fsdp_parallelism=4"}), "");  // not split: exact
}

TEST(Sizes, ContradictionsAreRefused) {
  const auto fault = [](void (*change)(Gemma3Config&)) {
    Gemma3Config sizes = testing::small_sizes();
    change(sizes);
    return error_of([&] { Gemma3Model(sizes, testing::small_options(), partitioner_of()); });
  };
  EXPECT_EQ(fault([](Gemma3Config& c) { c.num_kv_heads = 3; }),
            "num_query_heads=4 is not a multiple of num_kv_heads=3");
  EXPECT_EQ(fault([](Gemma3Config& c) { c.head_dim = 7; }),
            "head_dim=7: the rotary embedding needs an even size");
  EXPECT_EQ(fault([](Gemma3Config& c) { c.vocab_size = 0; }),
            "vocab_size=0: expected a positive number");
  EXPECT_EQ(fault([](Gemma3Config& c) { c.num_decoder_layers = -1; }),
            "num_decoder_layers=-1: expected a positive number");
}

// B10, and MaxText 0.2.5's form for the five sizes at 4 sequences of 4096.
TEST(FiveSizes, TeraflopsOfAStep) {
  constexpr double kExpected[] = {29.04, 102.05, 395.98, 1198.61, 2708.97};
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    const auto config = config_of({std::string("model_name=") + kSizes[i].name});
    const auto flops = train::step_flops(models::gemma3::sizes_from(config), 4, 4096, 1);
    EXPECT_NEAR(flops.total(), kExpected[i], 0.006) << kSizes[i].name;
  }
}

}  // namespace
}  // namespace mt
