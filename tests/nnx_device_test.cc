// nnx on the real CPU plugin: scan and remat over modules, gradients, optimizers, donation, and
// first values that don't depend on layout.
#include <gtest/gtest.h>

#include <cmath>

#include "nnx/init.h"
#include "nnx/jit.h"
#include "nnx/optimizer.h"
#include "nnx/rngs.h"
#include "nnx/test_modules.h"
#include "nnx/transforms.h"
#include "support/run_graph.h"

namespace mt::nnx {
namespace {

using ir::Value;
using testing::client;
using testing::values_of;

constexpr int64_t kWidth = 4, kDepth = 3;

// Layer i of the stack and layers_i have one name.
std::string one_name(const std::string& path, int64_t layer) {
  if (layer >= 0) return fmt::format("{}[{}]", path, layer);
  const size_t slash = path.find('/');
  return fmt::format("{}[{}]", path.substr(slash + 1), path.substr(7, slash - 7));
}

Tensor ramp(const Shape& shape) {
  Tensor t(DType::kF32, shape);
  for (size_t i = 0; i < static_cast<size_t>(t.size()); ++i) {
    t.mutable_data<float>()[i] = std::sin(static_cast<float>(i + 1));
  }
  return t;
}

struct Outcome {
  double loss = 0;
  std::vector<std::vector<float>> kernels, gradients;  // by layer
  std::vector<float> norms, calls;                     // by layer
};

std::vector<float> layer_of(const Tensor& t, int64_t axis, int64_t layer) {
  std::vector<int64_t> start(t.shape().size(), 0);
  Shape sizes = t.shape();
  start[static_cast<size_t>(axis)] = layer;
  sizes[static_cast<size_t>(axis)] = 1;
  return values_of<float>(t.slice(start, sizes));
}

const std::vector<Input> kInput{{"x", {DType::kF32, {2, kWidth}}, {}}};

Outcome separate_layers(bool with_remat) {
  TestStack stack(kWidth, kDepth);
  initialize(stack, client(), {}, 7, one_name);
  Outcome out;
  for (const auto& layer : stack.layers) {
    out.kernels.push_back(values_of<float>(layer->linear.kernel.array->to_host()));
  }
  Compiled step =
      jit("separate", client(), {&stack}, kInput, {}, [&](ir::Graph&, const Values& in) {
        const ValueAndGrad result = value_and_grad(stack, path_contains("kernel"), [&] {
          Value x = in[0];
          for (const auto& layer : stack.layers) {
            const auto call = [&](const Values& v) { return Values{(*layer)(v[0])}; };
            x = with_remat ? remat(*layer, {"dot"}, {x}, call)[0] : call({x})[0];
          }
          return Values{ir::sum_all(x * x)};
        });
        std::vector<Output> outputs{result.value};
        for (const Value& g : result.gradients.values()) outputs.emplace_back(g);
        for (const Sown& s : pop_intermediates(stack)) outputs.emplace_back(s.value);
        return outputs;
      });
  const auto results = step({ramp({2, kWidth})});
  out.loss = static_cast<double>(results[0].to_host().data<float>()[0]);
  for (size_t i = 0; i < kDepth; ++i) {
    out.gradients.push_back(values_of<float>(results[1 + i].to_host()));
    out.norms.push_back(results[1 + kDepth + i].to_host().data<float>()[0]);
    out.calls.push_back(stack.layers[i]->calls.array->to_host().data<float>()[0]);
  }
  return out;
}

Outcome stacked_layers(bool with_remat, int64_t axis) {
  TestLayer layer(kWidth);
  stack_layers(layer, kDepth, axis, "layers");
  initialize(layer, client(), {}, 7, one_name);
  Outcome out;
  const Tensor kernels = layer.linear.kernel.array->to_host();
  for (int64_t i = 0; i < kDepth; ++i) out.kernels.push_back(layer_of(kernels, axis, i));
  Compiled step = jit("stacked", client(), {&layer}, kInput, {}, [&](ir::Graph&, const Values& in) {
    const ValueAndGrad result = value_and_grad(layer, path_contains("kernel"), [&] {
      const Value x = scan(layer, kDepth, {in[0]}, [&](const Values& carry, Value) {
        const auto call = [&](const Values& v) { return Values{layer(v[0])}; };
        return with_remat ? remat(layer, {"dot"}, carry, call) : call(carry);
      })[0];
      return Values{ir::sum_all(x * x)};
    });
    std::vector<Output> outputs{result.value, result.gradients.values()[0]};
    for (const Sown& s : pop_intermediates(layer)) outputs.emplace_back(s.value);
    return outputs;
  });
  const auto results = step({ramp({2, kWidth})});
  out.loss = static_cast<double>(results[0].to_host().data<float>()[0]);
  const Tensor gradients = results[1].to_host();
  for (int64_t i = 0; i < kDepth; ++i) out.gradients.push_back(layer_of(gradients, axis, i));
  out.norms = values_of<float>(results[2].to_host());
  out.calls = values_of<float>(layer.calls.array->to_host());
  return out;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-6 * (1 + std::abs(a[i]))) << i;
}

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.kernels, b.kernels);  // bit for bit
  EXPECT_NEAR(a.loss, b.loss, 1e-6 * a.loss);
  EXPECT_EQ(a.calls, b.calls);
  expect_near(a.norms, b.norms);
  for (size_t i = 0; i < a.gradients.size(); ++i) expect_near(a.gradients[i], b.gradients[i]);
}

TEST(NnxDevice, ScanOverStackedLayersIsTheLoopOverSeparateOnes) {
  const Outcome loop = separate_layers(false);
  EXPECT_GT(loop.loss, 0);
  EXPECT_NE(loop.kernels[0], loop.kernels[1]);
  EXPECT_EQ(loop.calls, (std::vector<float>{1, 1, 1}));
  expect_same(loop, stacked_layers(false, 0));
  expect_same(loop, stacked_layers(false, 1));
}

TEST(NnxDevice, RematChangesNothingButTheProgram) {
  const Outcome loop = separate_layers(false);
  expect_same(loop, separate_layers(true));
  expect_same(loop, stacked_layers(true, 1));
}

// --- optimizers

struct AdamState {
  double m = 0, v = 0;
};

TEST(NnxDevice, AdamWIsTheLoopByHand) {
  TestLinear linear(2, 3);
  const AdamWOptions o{.b1 = 0.8, .b2 = 0.9, .eps = 1e-3, .eps_root = 1e-4, .weight_decay = 0.2};
  Optimizer optimizer(linear, adamw(o), of_kind(VariableKind::kParam));
  initialize(linear, client(), {}, 1);
  initialize(optimizer, client(), {}, 1);
  const std::vector<Input> inputs{{"x", {DType::kF32, {2, 2}}, {}}, {"lr", {DType::kF32, {}}, {}}};
  Compiled step = jit("step", client(), {&linear, &optimizer}, inputs, {},
                      [&](ir::Graph&, const Values& in) -> std::vector<Output> {
                        const auto [loss, aux, gradients] =
                            value_and_grad(linear, of_kind(VariableKind::kParam), [&] {
                              const Value y = ir::sin(linear(in[0]));
                              return Values{ir::sum_all(y), y};
                            });
                        optimizer.update(linear, gradients, in[1]);
                        return {loss, aux[0], gradients.values()[0]};
                      });
  std::vector<AdamState> state(6);
  std::vector<double> w;
  for (const float x : values_of<float>(linear.kernel.array->to_host())) w.push_back(x);
  for (int t = 1; t <= 5; ++t) {
    const double lr = 0.1 / t;
    const auto results =
        step({ramp({2, 2}), Tensor::of<float>(DType::kF32, {}, {static_cast<float>(lr)})});
    const Tensor g = results[2].to_host(), found = linear.kernel.array->to_host();
    for (size_t i = 0; i < w.size(); ++i) {
      const double gi = g.data<float>()[i];
      AdamState& s = state[i];
      s.m = o.b1 * s.m + (1 - o.b1) * gi;
      s.v = o.b2 * s.v + (1 - o.b2) * gi * gi;
      const double mh = s.m / (1 - std::pow(o.b1, t)), vh = s.v / (1 - std::pow(o.b2, t));
      w[i] -= lr * (mh / (std::sqrt(vh + o.eps_root) + o.eps) + o.weight_decay * w[i]);
      EXPECT_NEAR(found.data<float>()[i], w[i], 2e-6) << "step " << t << " element " << i;
    }
    EXPECT_EQ(optimizer.count.array->to_host().data<int32_t>()[0], t);
    EXPECT_EQ(results[1].shape(), (Shape{2, 3}));
  }
}

TEST(NnxDevice, SgdStepsAgainstTheGradient) {
  TestLinear linear(1, 1);
  Optimizer optimizer(linear, sgd(), of_kind(VariableKind::kParam));
  initialize(linear, client(), {}, 1);
  initialize(optimizer, client(), {}, 1);
  const float before = linear.kernel.array->to_host().data<float>()[0];
  Compiled step = jit("step", client(), {&linear, &optimizer}, {}, {},
                      [&](ir::Graph& g, const Values&) -> std::vector<Output> {
                        const State gradients = grad(linear, of_kind(VariableKind::kParam), [&] {
                          return Values{ir::sum_all(linear.kernel.value * 3.0)};
                        });
                        optimizer.update(linear, gradients, ir::full(g, DType::kF32, {}, 0.5));
                        return {};
                      });
  step(std::vector<Tensor>{});
  EXPECT_FLOAT_EQ(linear.kernel.array->to_host().data<float>()[0], before - 1.5F);
  EXPECT_EQ(linear.bias.array->to_host().data<float>()[0], 0);
}

// --- the gradient of a mean over microbatches, accumulated in a scan

TEST(NnxDevice, GradientsAccumulateInAScan) {
  TestLinear linear(2, 3);
  initialize(linear, client(), {}, 5);
  const auto loss_of = [&](Value x) {
    // The cast works on the parameter alone: it must be part of the region's gradient.
    const Value kernel = ir::cast(ir::cast(linear.kernel.value, DType::kF64), DType::kF32);
    return ir::sum_all(ir::tanh(ir::einsum("bi,io->bo", x, kernel)));
  };
  Compiled step = jit("accumulate", client(), {&linear}, {{"x", {DType::kF32, {4, 2, 2}}, {}}}, {},
                      [&](ir::Graph& g, const Values& in) -> std::vector<Output> {
                        const Filter wrt = path_contains("kernel");
                        const Value whole = grad(linear, wrt, [&] {
                                              return Values{loss_of(ir::reshape(in[0], {8, 2}))};
                                            }).values()[0];
                        const Value summed = ir::scan(
                            {ir::full(g, DType::kF32, {2, 3}, 0)}, {in[0]}, {.length = 4},
                            [&](const Values& at) {
                              const State part = grad(
                                  linear, wrt, [&] { return Values{loss_of(at[1])}; }, at[0].graph);
                              return Values{at[0] + part.values()[0]};
                            })[0];
                        return {whole, summed};
                      });
  const auto results = step({ramp({4, 2, 2})});
  const auto whole = values_of<float>(results[0].to_host());
  EXPECT_NE(whole[0], 0);
  expect_near(whole, values_of<float>(results[1].to_host()));
}

// --- donation

Compiled doubling(TestLinear& linear, bool donate) {
  return Traced::trace(
             "double", {&linear}, {}, {},
             [&](ir::Graph&, const Values&) {
               linear.kernel.value = linear.kernel.value * 2.0;
               return std::vector<Output>{linear.bias.value};
             },
             donate)
      ->lower()
      .compile(client());
}

TEST(NnxDevice, ChangedVariablesAreDonated) {
  TestLinear linear(2, 3);
  initialize(linear, client(), {}, 1);
  const auto kernel = linear.kernel.array, bias = linear.bias.array;
  const float before = kernel->to_host().data<float>()[0];
  doubling(linear, true)(std::vector<Tensor>{});
  EXPECT_TRUE(kernel->is_consumed());
  EXPECT_FALSE(bias->is_consumed());
  EXPECT_EQ(linear.bias.array, bias);
  EXPECT_EQ(linear.kernel.array->to_host().data<float>()[0], 2 * before);
}

TEST(NnxDevice, WithoutDonationTheOldArrayStays) {
  TestLinear linear(2, 3);
  initialize(linear, client(), {}, 1);
  const auto kernel = linear.kernel.array;
  const float before = kernel->to_host().data<float>()[0];
  doubling(linear, false)(std::vector<Tensor>{});
  EXPECT_EQ(kernel->to_host().data<float>()[0], before);
  EXPECT_EQ(linear.kernel.array->to_host().data<float>()[0], 2 * before);
}

TEST(NnxDevice, AbstractStateHasNoBuffers) {
  TestLinear linear(2, 3);
  initialize(linear, client(), {}, 1);
  const int64_t live = pjrt::live_buffers();
  const State abstract = eval_shape(linear);
  EXPECT_EQ(abstract.entries[0].variable.array, nullptr);
  EXPECT_EQ(pjrt::live_buffers(), live);
}

// --- first values

std::vector<uint32_t> first_bits(const Partitioner& partitioner, uint64_t seed,
                                 Shape* shard = nullptr) {
  TestLayer layer(8);
  stack_layers(layer, kDepth, 1, "layers");
  initialize(layer, client(partitioner.mesh.device_count()), partitioner, seed);
  if (shard != nullptr) *shard = layer.linear.kernel.array->shard_to_host(0).shape();
  return values_of<uint32_t>(layer.linear.kernel.array->to_host());
}

TEST(NnxDevice, FirstValuesAreTheSameOnAnyMeshBitForBit) {
  const auto one = first_bits({}, 3);
  Shape shard;
  const Partitioner rows{{{{"fsdp", 4}}}, {{"embed", {"fsdp"}}}};
  EXPECT_EQ(first_bits(rows, 3, &shard), one);
  EXPECT_EQ(shard, (Shape{2, kDepth, 8}));
  const Partitioner both{{{{"fsdp", 2}, {"tensor", 2}}},
                         {{"embed", {"tensor"}}, {"mlp", {"fsdp"}}}};
  EXPECT_EQ(first_bits(both, 3, &shard), one);
  EXPECT_EQ(shard, (Shape{4, kDepth, 4}));
  EXPECT_NE(first_bits({}, 4), one);
}

TEST(NnxDevice, FirstValuesHaveTheAskedForSpread) {
  TestLinear linear(400, 500);
  initialize(linear, client(), {}, 9);
  double sum = 0, squares = 0, largest = 0;
  const Tensor t = linear.kernel.array->to_host();
  for (const float x : t.data<float>()) {
    sum += x;
    squares += static_cast<double>(x) * x;
    largest = std::max(largest, std::abs(static_cast<double>(x)));
  }
  const auto n = static_cast<double>(t.size());
  EXPECT_NEAR(sum / n, 0, 5 * 0.05 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1.0 / 400, 0.02 / 400);
  EXPECT_LE(largest, 2 * 0.05 / 0.87962566103423978 * (1 + 1e-6));
}

TEST(NnxDevice, VariablesThatHaveAnArrayKeepIt) {
  TestLinear linear(2, 3);
  initialize(linear, client(), {}, 1);
  const auto kernel = linear.kernel.array;
  linear.bias.array = nullptr;
  initialize(linear, client(), {}, 2);
  EXPECT_EQ(linear.kernel.array, kernel);
  EXPECT_NE(linear.bias.array, nullptr);
}

TEST(NnxDevice, WhatDoesNotDivideIsRefusedBeforeAnythingIsMade) {
  TestLinear linear(6, 8);
  const Partitioner partitioner{{{{"fsdp", 4}}}, {{"embed", {"fsdp"}}}};
  EXPECT_EQ(testing::error_of([&] { initialize(linear, client(4), partitioner, 1); }),
            "kernel: axis embed has size 6, which is not divisible by mesh axis fsdp of size 4");
}

TEST(NnxDevice, AShardedStepIsTheStepOfOneDevice) {
  const auto losses = [](const Partitioner& partitioner, const sharding::PartitionSpec& rows) {
    TestStack stack(8, 2);
    Optimizer optimizer(stack, adamw({}), of_kind(VariableKind::kParam));
    const auto device = client(partitioner.mesh.device_count());
    initialize(stack, device, partitioner, 1);
    initialize(optimizer, device, partitioner, 1);
    Compiled step = jit("step", device, {&stack, &optimizer}, {{"x", {DType::kF32, {8, 8}}, rows}},
                        partitioner, [&](ir::Graph& g, const Values& in) -> std::vector<Output> {
                          const auto [loss, aux, gradients] =
                              value_and_grad(stack, of_kind(VariableKind::kParam), [&] {
                                const Value y = stack(in[0]);
                                return Values{ir::sum_all(y * y)};
                              });
                          pop_intermediates(stack);
                          optimizer.update(stack, gradients, ir::full(g, DType::kF32, {}, 0.01));
                          return {loss};
                        });
    std::vector<float> out;
    for (int i = 0; i < 3; ++i) out.push_back(step({ramp({8, 8})})[0].to_host().data<float>()[0]);
    return out;
  };
  const auto one = losses({}, {});
  EXPECT_LT(one[2], one[0]);
  const std::vector<sharding::AxisRule> rules{{"embed", {"fsdp"}}, {"mlp", {"tensor"}}};
  expect_near(losses({{{{"fsdp", 4}}}, rules}, {{{"fsdp"}, {}}}), one);
  expect_near(losses({{{{"fsdp", 2}, {"tensor", 2}}}, rules}, {{{"fsdp"}, {}}}), one);
}

}  // namespace
}  // namespace mt::nnx
