// CSE, DCE, inlining and the dump, by node counts and whole texts.
#include "ir/passes.h"

#include <gtest/gtest.h>

#include "ir/ops.h"

namespace mt::ir {
namespace {

using Values = std::vector<Value>;

struct Fixture {
  Graph graph;
  Value x = graph.parameter({DType::kF32, {2}}, "x");
  int64_t after(OpKind kind, Values outputs) {
    graph.outputs = std::move(outputs);
    return count(*optimise(graph), kind);
  }
};

TEST(Passes, EqualNodesAreMerged) {
  Fixture f;
  EXPECT_EQ(f.after(OpKind::kTanh, {tanh(f.x), tanh(f.x)}), 1);
  EXPECT_EQ(f.after(OpKind::kConstant, {f.x + 2.0, f.x * 2.0}), 1);
  EXPECT_EQ(f.after(OpKind::kExp, {exp(tanh(f.x)), exp(tanh(f.x))}), 1);
}

TEST(Passes, NodesThatDifferAreNot) {
  Fixture f;
  const Value zero = full(f.graph, DType::kF32, {2}, 0.0),
              minus = full(f.graph, DType::kF32, {2}, -0.0);
  EXPECT_EQ(f.after(OpKind::kConstant, {f.x + zero, f.x + minus}), 2);
  const Value a = constant(f.graph, Tensor::of<float>(DType::kF32, {2}, {1, 2}));
  const Value b = constant(f.graph, Tensor::of<float>(DType::kF32, {2}, {1, 3}));
  EXPECT_EQ(f.after(OpKind::kConstant, {a, b, a}), 2);
  EXPECT_EQ(f.after(OpKind::kCompare,
                    {compare(f.x, Direction::kLt, zero), compare(f.x, Direction::kLe, zero)}),
            2);
  EXPECT_EQ(f.after(OpKind::kConvert, {cast(f.x, DType::kF16), cast(f.x, DType::kBF16)}), 2);
  EXPECT_EQ(f.after(OpKind::kSlice, {slice_axis(f.x, 0, 0, 1), slice_axis(f.x, 0, 1, 2)}), 2);
}

TEST(Passes, BarriersAndCallsAreNotMerged) {
  Fixture f;
  EXPECT_EQ(f.after(OpKind::kBarrier, {barrier({f.x})[0], barrier({f.x})[0]}), 2);
  EXPECT_EQ(f.after(OpKind::kTanh, {tanh(barrier({f.x})[0]), tanh(f.x)}), 2);
  const auto call = [&] { return custom_call(f.graph, {.target = "t"}, {f.x}, {f.x.type()})[0]; };
  EXPECT_EQ(f.after(OpKind::kCustomCall, {call(), call()}), 2);
}

TEST(Passes, WhatNobodyNeedsIsDropped) {
  Fixture f;
  const Value unused = f.graph.parameter({DType::kF32, {}}, "unused");
  tanh(f.x);
  custom_call(f.graph, {.target = "dead"}, {f.x}, {f.x.type()});
  custom_call(f.graph, {.target = "print", .has_side_effect = true}, {exp(f.x)}, {});
  f.graph.outputs = {f.x + 1.0};
  const auto out = optimise(f.graph);
  EXPECT_EQ(count(*out, OpKind::kTanh), 0);
  EXPECT_EQ(count(*out, OpKind::kCustomCall), 1);
  EXPECT_EQ(count(*out, OpKind::kExp), 1);
  EXPECT_EQ(out->parameters().size(), 2U) << "parameters stay: " << unused.id;
}

TEST(Passes, ReachIntoRegions) {
  Fixture f;
  const Value y = scan({f.x}, {}, {.length = 3}, [](const Values& in) {
    exp(in[0]);
    return Values{tanh(in[0]) + tanh(in[0])};
  })[0];
  EXPECT_EQ(f.after(OpKind::kTanh, {y}), 1);
  EXPECT_EQ(f.after(OpKind::kExp, {y}), 0);
  EXPECT_EQ(f.after(OpKind::kScan, {f.x}), 0);
}

TEST(Passes, AnnotationsOfAutodiffAreInlined) {
  Fixture f;
  const Value y = remat({f.x}, {}, [](const Values& in) {
    return custom_vjp(
        "f", {checkpoint_name(in[0], "tag")}, [](const Values& a) { return Values{exp(a[0])}; },
        [](const Values&, const Values&, const Values& ct) { return ct; });
  })[0];
  for (const OpKind kind : {OpKind::kRemat, OpKind::kCustomVjp, OpKind::kName}) {
    EXPECT_GT(count(f.graph, kind), 0);
    EXPECT_EQ(f.after(kind, {y}), 0) << name(kind);
  }
  EXPECT_EQ(f.after(OpKind::kExp, {y}), 1);
}

TEST(Passes, OptimisingTwiceChangesNothing) {
  Fixture f;
  f.graph.outputs = {tanh(f.x * 2.0) + tanh(f.x * 2.0)};
  const auto once = optimise(f.graph);
  EXPECT_EQ(dump(*once), dump(*optimise(*once)));
}

TEST(Passes, DumpIsReadable) {
  Graph g;
  const Value x = g.parameter({DType::kF32, {3, 2}}, "x"), w = g.parameter({DType::kF32, {2}}, "w");
  const Scope scope(g, "decoder");
  const Value y = scan({w}, {x}, {.length = 3}, [](const Values& in) {
    const Scope layer(*in[0].graph, "mlp");
    return Values{tanh(in[0] * in[1])};
  })[0];
  g.outputs = {y + 0.5, reduce_sum(x, {0})};
  EXPECT_EQ(dump(g), R"(%0 = parameter {x} : f32[3, 2]
%1 = parameter {w} : f32[2]
%2 = scan %1, %0 {length=3 carries=1 x_axes=[0] y_axes=[]} : f32[2]  # decoder
    %0 = parameter : f32[2]  # decoder
    %1 = parameter : f32[2]  # decoder
    %2 = multiply %0, %1 : f32[2]  # decoder/mlp
    %3 = tanh %2 : f32[2]  # decoder/mlp
    return %3
%3 = constant {0.5} : f32[]  # decoder
%4 = broadcast_in_dim %3 {axes=[]} : f32[2]  # decoder
%5 = add %2, %4 : f32[2]  # decoder
%6 = reduce_sum %0 {axes=[0]} : f32[2]  # decoder
return %5 %6
)");
}

}  // namespace
}  // namespace mt::ir
