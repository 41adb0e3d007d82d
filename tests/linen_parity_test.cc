// Before and after the move from Linen to NNX: the same tree, the same programs, the same losses to
// the last bit.
#include <gtest/gtest.h>

#include <bit>

#include "linen/gemma3.h"
#include "prove/program_diff.h"
#include "support/small_model.h"

namespace mt {
namespace {

using testing::SmallRun;
using Words = std::vector<std::string>;

struct Layout {
  bool scan = true;
  Words mesh;
};

std::vector<Layout> layouts() {
  return {{true, {}},
          {false, {}},
          {true, {"ici_fsdp_parallelism=2", "ici_tensor_parallelism=2"}},
          {false, {"ici_fsdp_parallelism=4"}}};
}

models::gemma3::ModelOptions options_of(const Layout& layout) {
  models::gemma3::ModelOptions o = testing::small_options();
  o.scan_layers = layout.scan;
  return o;
}

constexpr int64_t kLayers = 8;  // a scanned block and two more

void expect_equal_programs(const std::string& before, const std::string& after,
                           const std::string& what) {
  const prove::ProgramDiff diff =
      prove::compare(prove::read_program(before, "before"), prove::read_program(after, "after"));
  EXPECT_TRUE(diff.equal) << what << "\n" << to_text(diff);
}

TEST(LinenParity, TheTreesAreEqual) {
  for (const Layout& layout : layouts()) {
    models::gemma3::ModelOptions options = options_of(layout);
    options.cache.rows = 2;
    options.cache.length = 16;
    const auto partitioner = testing::partitioner_of(layout.mesh);
    models::gemma3::Gemma3Model model(testing::small_sizes(kLayers), options, partitioner);
    const linen::Before before(model);
    auto vars = nnx::variables(model);
    std::erase_if(vars, [](const auto& v) { return v.path.starts_with("token_embedder/"); });
    ASSERT_EQ(before.variables().entries.size(), vars.size());
    for (size_t i = 0; i < vars.size(); ++i) {
      const linen::Entry& e = before.variables().entries[i];
      EXPECT_EQ(e.path, vars[i].path);
      EXPECT_EQ(e.variable.type, vars[i].variable->type) << e.path;
      std::vector<std::string> axes = vars[i].variable->axes;
      axes.resize(vars[i].variable->type.shape.size());
      EXPECT_EQ(e.variable.names, axes) << e.path;
      EXPECT_EQ(e.collection, nnx::collection_of(vars[i].variable->kind)) << e.path;
    }
  }
}

std::string step_text(models::gemma3::Gemma3Model& model, nnx::Optimizer& optimizer,
                      const train::StepOptions& options) {
  return train::trace_train_step(model, optimizer, options)->lower().text();
}

std::unique_ptr<nnx::Optimizer> optimizer_of(models::gemma3::Gemma3Model& model) {
  return std::make_unique<nnx::Optimizer>(model, nnx::adamw({}),
                                          nnx::of_kind(nnx::VariableKind::kParam));
}

train::HiddenFunction before_of(linen::Before& before) {
  return [&](auto& model, ir::Value tokens, ir::Value positions, ir::Value segments,
             nnx::Rngs* rngs) { return before.hidden(model, tokens, positions, segments, rngs); };
}

TEST(LinenParity, TheTrainingStepsAreOneProgram) {
  for (const Layout& layout : layouts()) {
    for (const double dropout : {0.0, 0.1}) {
      models::gemma3::ModelOptions o = options_of(layout);
      o.dropout_rate = dropout;
      models::gemma3::Gemma3Model model(testing::small_sizes(kLayers), o,
                                        testing::partitioner_of(layout.mesh));
      const auto optimizer = optimizer_of(model);
      linen::Before before(model);
      train::StepOptions options = testing::step_options(4, 8);
      const std::string after_text = step_text(model, *optimizer, options);
      options.hidden = before_of(before);
      expect_equal_programs(step_text(model, *optimizer, options), after_text,
                            fmt::format("scan {} dropout {}", layout.scan, dropout));
    }
  }
}

TEST(LinenParity, PrefillAndGenerateAreOneProgram) {
  for (const Layout& layout : layouts()) {
    for (const int64_t tokens : {8, 1}) {
      models::gemma3::ModelOptions o = options_of(layout);
      o.cache.rows = 1;
      o.cache.length = 16;
      const auto partitioner = testing::partitioner_of(layout.mesh);
      models::gemma3::Gemma3Model model(testing::small_sizes(kLayers), o, partitioner);
      linen::Before before(model);
      const auto text = [&](bool use_before) {
        const std::vector<nnx::Input> inputs{{"tokens", {DType::kS32, {1, tokens}}, {}},
                                             {"start", {DType::kS32, {1}}, {}},
                                             {"count", {DType::kS32, {1}}, {}}};
        return nnx::Traced::trace(
                   "jit_pass", {&model}, inputs, *partitioner,
                   [&](ir::Graph&, const std::vector<ir::Value>& in) -> std::vector<nnx::Output> {
                     const layers::CachePass pass{in[1], in[2], tokens};
                     return {model.token_embedder.attend(
                         use_before ? before.hidden_with_cache(model, in[0], pass)
                                    : model.hidden_with_cache(in[0], pass))};
                   })
            ->lower()
            .text();
      };
      expect_equal_programs(text(true), text(false), fmt::format("{} tokens", tokens));
    }
  }
}

std::vector<float> losses(SmallRun& run, const train::StepOptions& options, int64_t steps) {
  const auto optimizer = optimizer_of(*run.model);
  nnx::initialize(*optimizer, run.devices, *run.partitioner, 0);
  auto program =
      train::trace_train_step(*run.model, *optimizer, options)->lower().compile(run.devices);
  std::vector<float> out;
  for (int32_t step = 0; step < steps; ++step) {
    std::vector<Tensor> inputs = testing::random_batch(4, 8, 64, static_cast<uint64_t>(step));
    inputs.push_back(Tensor::of<float>(DType::kF32, {}, {1e-2F}));
    inputs.push_back(Tensor::of<int32_t>(DType::kS32, {}, {step}));
    const Tensor metrics = program(inputs)[0].to_host();
    out.push_back(metrics.data<float>()[train::kLoss]);
    out.push_back(metrics.data<float>()[train::kRawGradNorm]);
  }
  return out;
}

TEST(LinenParity, LossesAndGradientNormsAreEqualToTheLastBit) {
  for (const Layout& layout : {layouts()[0], layouts()[3]}) {
    SmallRun after(testing::small_sizes(2), options_of(layout), layout.mesh);
    SmallRun before(testing::small_sizes(2), options_of(layout), layout.mesh);
    linen::Before linen(*before.model);
    train::StepOptions options = testing::step_options(4, 8);
    const std::vector<float> a = losses(after, options, 4);
    options.hidden = before_of(linen);
    const std::vector<float> b = losses(before, options, 4);
    ASSERT_EQ(a.size(), b.size());
    EXPECT_NE(a[0], a[2]);  // it learns
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i])) << i;
    }
  }
}

// The comparison can fail: a decoder that differs in one place is told apart.
TEST(LinenParity, AChangedDecoderIsFound) {
  models::gemma3::Gemma3Model model(testing::small_sizes(kLayers), options_of({true, {}}),
                                    testing::partitioner_of());
  const auto optimizer = optimizer_of(model);
  linen::Before before(model);
  train::StepOptions options = testing::step_options(4, 8);
  const auto after = prove::read_program(step_text(model, *optimizer, options), "after");
  options.hidden = [&](auto& m, ir::Value tokens, ir::Value positions, ir::Value segments,
                       nnx::Rngs* rngs) {
    return before.hidden(m, tokens, positions, segments, rngs) * 1.5;
  };
  EXPECT_FALSE(
      compare(prove::read_program(step_text(model, *optimizer, options), "before"), after).equal);
}

}  // namespace
}  // namespace mt
