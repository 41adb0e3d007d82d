// Variables, paths, filters, state, tables, stacking, initial types: nothing here has a device.
#include <gtest/gtest.h>

#include "autodiff/vjp.h"
#include "base/error.h"
#include "ir/passes.h"
#include "nnx/init.h"
#include "nnx/jit.h"
#include "nnx/optimizer.h"
#include "nnx/rngs.h"
#include "nnx/test_modules.h"
#include "nnx/transforms.h"

namespace mt::nnx {
namespace {

std::vector<std::string> paths(const State& s) {
  std::vector<std::string> out;
  for (const auto& e : s.entries) out.push_back(e.path);
  return out;
}

template <typename F>
std::string error_of(const F& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

using Paths = std::vector<std::string>;

TEST(Module, PathsFollowVisit) {
  TestStack stack(4, 2);
  EXPECT_EQ(paths(state(stack)),
            (Paths{"layers_0/linear/kernel", "layers_0/linear/bias", "layers_0/calls",
                   "layers_1/linear/kernel", "layers_1/linear/bias", "layers_1/calls"}));
  Paths found;
  for (const auto& [path, m] : modules(stack)) found.push_back(path);
  EXPECT_EQ(found, (Paths{"", "layers_0", "layers_0/linear", "layers_1", "layers_1/linear"}));
}

TEST(Module, AnAbsentChildIsSkipped) {
  class Holder final : public Module {
   public:
    void visit(Visitor& v) override { v("child", child); }
    std::unique_ptr<TestLinear> child;
  } holder;
  EXPECT_TRUE(variables(holder).empty());
  holder.child = std::make_unique<TestLinear>(2, 3);
  EXPECT_EQ(paths(state(holder)), (Paths{"child/kernel", "child/bias"}));
}

TEST(Filter, ByKindPathAndCombination) {
  TestStack stack(4, 2);
  EXPECT_EQ(paths(state(stack, of_kind(VariableKind::kBatchStat))),
            (Paths{"layers_0/calls", "layers_1/calls"}));
  EXPECT_EQ(paths(state(stack, path_contains("layers_1"))),
            (Paths{"layers_1/linear/kernel", "layers_1/linear/bias", "layers_1/calls"}));
  EXPECT_TRUE(state(stack, path_contains("layers")).entries.empty()) << "whole components only";
  EXPECT_EQ(state(stack, path_contains("layers_1/linear")).entries.size(), 2U);
  EXPECT_EQ(
      paths(state(stack, all_of({of_kind(VariableKind::kParam), not_of(path_contains("bias"))}))),
      (Paths{"layers_0/linear/kernel", "layers_1/linear/kernel"}));
  EXPECT_EQ(state(stack, any_of({path_contains("kernel"), path_contains("calls")})).entries.size(),
            4U);
  EXPECT_TRUE(state(stack, nothing()).entries.empty());
}

TEST(State, SplitGivesEachVariableToItsFirstFilter) {
  TestStack stack(4, 1);
  const auto parts =
      split(stack, {path_contains("kernel"), of_kind(VariableKind::kParam), everything()});
  EXPECT_EQ(paths(parts[0]), (Paths{"layers_0/linear/kernel"}));
  EXPECT_EQ(paths(parts[1]), (Paths{"layers_0/linear/bias"}));
  EXPECT_EQ(paths(parts[2]), (Paths{"layers_0/calls"}));
  EXPECT_EQ(error_of([&] { split(stack, {of_kind(VariableKind::kParam)}); }),
            "split: no filter takes layers_0/calls (BatchStat)");
}

TEST(State, MergeWritesBack) {
  TestLinear linear(2, 3);
  ir::Graph g;
  State s = state(linear);
  for (auto& e : s.entries) e.variable.value = g.parameter(e.variable.type, e.path);
  merge(linear, {s.filter(path_contains("kernel")), s.filter(path_contains("bias"))});
  EXPECT_EQ(linear.kernel.value, s.entries[0].variable.value);
  EXPECT_EQ(linear.bias.value, s.find("bias")->value);
  EXPECT_EQ(s.find("nothing"), nullptr);
}

TEST(State, UpdateNamesWhatDoesNotFit) {
  TestLinear linear(2, 3), other(2, 4);
  TestStack stack(4, 1);
  EXPECT_EQ(error_of([&] { update(linear, state(other)); }),
            "update: kernel is f32[2, 3], the state has f32[2, 4]");
  EXPECT_EQ(error_of([&] { update(linear, state(stack)); }),
            "update: the module has no variable layers_0/linear/kernel");
}

TEST(State, CountsAndAbstractState) {
  TestLinear linear(2, 3);
  const State abstract = eval_shape(linear);
  EXPECT_EQ(abstract.element_count(), 9);
  EXPECT_EQ(abstract.byte_count(), 36);
  for (const auto& e : abstract.entries) {
    EXPECT_FALSE(e.variable.value);
    EXPECT_EQ(e.variable.array, nullptr);
  }
}

// A model far larger than any memory here: only its description exists.
TEST(State, AbstractStateAllocatesNothing) {
  TestStack stack(1 << 20, 100);
  EXPECT_EQ(eval_shape(stack).filter(path_contains("kernel")).element_count(), int64_t{100} << 40);
}

TEST(Table, Tabulate) {
  TestStack stack(16, 1);
  EXPECT_EQ(tabulate(stack),
            R"(path                   | kind         | shape       | axes       | size
-----------------------------------------------------------------------
layers_0/linear/kernel | Param        | f32[16, 16] | embed, mlp | 256 (1.0 KiB)
layers_0/linear/bias   | Param        | f32[16]     | mlp        | 16 (0.1 KiB)
layers_0/calls         | BatchStat    | f32[]       |            | 1 (0.0 KiB)
Total BatchStat: 1 (0.0 KiB)
Total Param: 272 (1.1 KiB)
)");
}

TEST(Table, TabulateGroupsDeeperPaths) {
  TestStack stack(16, 2);
  EXPECT_EQ(tabulate(stack, 1),
            R"(path     | kind         | shape | axes | size
---------------------------------------------
layers_0 | mixed        | ...   | ...  | 273 (1.1 KiB)
layers_1 | mixed        | ...   | ...  | 273 (1.1 KiB)
Total BatchStat: 2 (0.0 KiB)
Total Param: 544 (2.1 KiB)
)");
}

TEST(Table, Display) {
  TestStack stack(16, 2);
  EXPECT_EQ(display(stack), R"(layers_0
  linear
    kernel: Param f32[16, 16]
    bias: Param f32[16]
  calls: BatchStat f32[]
layers_1
  linear
    kernel: Param f32[16, 16]
    bias: Param f32[16]
  calls: BatchStat f32[]
)");
}

TEST(Stacking, AddsANamedAxis) {
  TestLayer layer(4);
  stack_layers(layer, 3, 1, "layers");
  EXPECT_EQ(layer.linear.kernel.type.shape, (Shape{4, 3, 4}));
  EXPECT_EQ(layer.linear.kernel.axes, (std::vector<std::string>{"embed", "layers", "mlp"}));
  EXPECT_EQ(layer.linear.kernel.layer_shape(), (Shape{4, 4}));
  EXPECT_EQ(layer.linear.bias.type.shape, (Shape{4, 3}));  // fewer axes: at the end
  EXPECT_EQ(layer.linear.bias.axes, (std::vector<std::string>{"mlp", "layers"}));
  EXPECT_EQ(layer.calls.type.shape, (Shape{3}));
  EXPECT_EQ(layer.calls.stack_axis, 0);
  EXPECT_EQ(layer.calls.stack_length, 3);
}

TEST(Sharding, TypesFollowTheRules) {
  TestLayer layer(8);
  const Partitioner partitioner{{{{"fsdp", 4}, {"tensor", 2}}},
                                {{"embed", {"fsdp"}}, {"mlp", {"tensor"}}}};
  const auto type = array_type("kernel", layer.linear.kernel, partitioner);
  EXPECT_EQ(to_string(type->spec), "P(fsdp, tensor)");
  EXPECT_EQ(type->shard_shape(), (Shape{2, 4}));
}

TEST(Sharding, WhatDoesNotDivideIsNamedInOneLine) {
  TestLinear linear(6, 8);
  const Partitioner partitioner{{{{"fsdp", 4}}}, {{"embed", {"fsdp"}}}};
  EXPECT_EQ(error_of([&] { array_type("decoder/wi/kernel", linear.kernel, partitioner); }),
            "decoder/wi/kernel: axis embed has size 6, which is not divisible by mesh axis fsdp of "
            "size 4");
}

TEST(Sow, CollectsWithPathsAndLeavesNothing) {
  TestStack stack(4, 2);
  ir::Graph g;
  for (const auto& [path, v] : variables(stack)) v->value = g.parameter(v->type, path);
  stack(g.parameter({DType::kF32, {1, 4}}));
  const auto sown = pop_intermediates(stack);
  ASSERT_EQ(sown.size(), 2U);
  EXPECT_EQ(sown[0].path, "layers_0/norm");
  EXPECT_EQ(sown[1].path, "layers_1/norm");
  EXPECT_TRUE(pop_intermediates(stack).empty());
}

TEST(Optimizer, MirrorsTheParameters) {
  TestLayer layer(4);
  stack_layers(layer, 3, 1, "layers");
  Optimizer optimizer(layer, adamw({}), of_kind(VariableKind::kParam), DType::kBF16);
  EXPECT_EQ(paths(state(optimizer)),
            (Paths{"opt_state/count", "opt_state/mu/linear/kernel", "opt_state/mu/linear/bias",
                   "opt_state/nu/linear/kernel", "opt_state/nu/linear/bias"}));
  const State s = state(optimizer);
  const Variable& mu = s.entries[1].variable;
  EXPECT_EQ(to_string(mu.type), "bf16[4, 3, 4]");
  EXPECT_EQ(mu.axes, layer.linear.kernel.axes);
  EXPECT_EQ(mu.stack_axis, 1);
  Optimizer plain(layer, sgd(), of_kind(VariableKind::kParam));
  EXPECT_EQ(paths(state(plain)), (Paths{"opt_state/count"}));
}

TEST(Jit, TracedProgramsNameTheirArguments) {
  TestLinear linear(2, 3);
  const auto traced = Traced::trace(
      "forward", {&linear}, {{"x", {DType::kF32, {1, 2}}, {}}}, {},
      [&](ir::Graph&, const Values& in) -> std::vector<Output> { return {linear(in[0])}; });
  EXPECT_FALSE(linear.kernel.value) << "values are there only while a program is traced";
  EXPECT_EQ(traced->argument_bytes(), (6 + 3 + 2) * 4);
  const std::string text = traced->lower().text();
  for (const char* part : {"module @forward", "loc(\"kernel\")", "loc(\"bias\")", "loc(\"x\")"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(text.find("aliasing_output"), std::string::npos)
      << "nothing changes, nothing is donated";
}

TEST(Jit, AVariableThatLeavesAsAnotherTypeIsNamed) {
  TestLinear linear(2, 3);
  EXPECT_EQ(error_of([&] {
              Traced::trace("bad", {&linear}, {}, {}, [&](ir::Graph&, const Values&) {
                linear.bias.value = ir::cast(linear.bias.value, DType::kBF16);
                return std::vector<Output>{};
              });
            }),
            "bias enters the program as f32[3] and leaves it as bf16[3]");
  EXPECT_FALSE(linear.bias.value);
}

TEST(Jit, AnInputThatDoesNotDivideIsRefused) {
  TestLinear linear(2, 3);
  const Partitioner partitioner{{{{"fsdp", 4}}}, {}};
  EXPECT_NE(error_of([&] {
              Traced::trace("bad", {&linear}, {{"x", {DType::kF32, {6, 2}}, {{{"fsdp"}, {}}}}},
                            partitioner, [&](ir::Graph&, const Values& in) -> std::vector<Output> {
                              return {linear(in[0])};
                            });
            }).find("fsdp"),
            std::string::npos);
}

TEST(Rngs, StreamsAreIndependentOfOneAnother) {
  ir::Graph g;
  Rngs rngs(ir::key_from_seed(g, 1)), same(ir::key_from_seed(g, 1));
  g.outputs = {rngs("dropout"), rngs("dropout"), rngs("params"), same("params")};
  const auto out = ir::optimise(g);
  EXPECT_FALSE(out->outputs[0] == out->outputs[1]);
  EXPECT_FALSE(out->outputs[0] == out->outputs[2]);
  EXPECT_EQ(out->outputs[2], out->outputs[3]) << "a stream does not depend on the others' use";
}

TEST(Rngs, NamesAreHashedByFnv) {
  EXPECT_EQ(name_hash(""), 0x811c9dc5U);
  EXPECT_EQ(name_hash("a"), 0xe40c292cU);
  EXPECT_EQ(name_hash("foobar"), 0xbf9cf968U);
}

}  // namespace
}  // namespace mt::nnx
