// Every op that has a gradient rule, in float64 against central differences; remat and scan keep
// their gradients; second derivatives; op counts that prove recomputation.
#include <gtest/gtest.h>

#include <set>

#include "autodiff/rules.h"
#include "autodiff/vjp.h"
#include "ir/ops.h"
#include "support/gradient_check.h"
#include "support/op_samples.h"
#include "support/structure_samples.h"

namespace mt {
namespace {

using ir::OpKind;
using ir::Value;
using Values = std::vector<Value>;
using testing::error_of;
using testing::GradientSample;

TEST(Gradients, EveryOpAgainstCentralDifferences) {
  for (const GradientSample& sample : testing::elementwise_samples()) check_gradient(sample);
  for (const GradientSample& sample : testing::shape_samples()) check_gradient(sample);
}

TEST(Gradients, EveryOpWithARegionAgainstCentralDifferences) {
  for (const GradientSample& sample : testing::structure_samples()) check_gradient(sample);
}

TEST(Gradients, SecondDerivatives) {
  for (const GradientSample& sample : testing::second_derivative_samples()) check_gradient(sample);
}

TEST(Gradients, EveryRuleHasASample) {
  std::set<OpKind> covered;
  for (const auto& list :
       {testing::elementwise_samples(), testing::shape_samples(), testing::structure_samples()}) {
    for (const GradientSample& sample : list) covered.insert(sample.kind);
  }
  for (const autodiff::RuleRow& row : autodiff::kRules) {
    if (row.rule != nullptr) {
      EXPECT_TRUE(covered.contains(row.kind)) << name(row.kind) << " has a rule and no sample";
    } else {
      EXPECT_STRNE(row.reason, "") << name(row.kind) << " has neither a rule nor a reason";
    }
  }
}

TEST(Gradients, OpsWithoutAReverseModeSayWhatToDo) {
  ir::Graph graph;
  const ir::Scope scope(graph, "decoder");
  const Value x = graph.parameter({DType::kF64, {}});
  const Values looped = ir::while_loop(
      {x},
      [](const Values& s) { return Values{ir::compare(s[0], ir::Direction::kLt, s[0] + 1.0)}; },
      [](const Values& s) { return Values{s[0] * 2.0}; }, {"src/models/a.cc", 7});
  EXPECT_EQ(error_of([&] { autodiff::grad(looped[0], {x}); }),
            "[while] a while loop has no reverse mode; use scan, or wrap it in custom_vjp (in "
            "decoder, src/models/a.cc:7)");
  const Values called =
      ir::custom_call(graph, {.target = "attend"}, {x}, {x.type()}, {"src/models/a.cc", 9});
  EXPECT_EQ(error_of([&] { autodiff::grad(called[0], {x}); }),
            "[custom_call] a custom call has no gradient of its own; wrap it in custom_vjp (in "
            "decoder, src/models/a.cc:9)");
}

TEST(Gradients, BadCallsAreNamed) {
  ir::Graph graph;
  const Value x = graph.parameter({DType::kF32, {2}}), n = graph.parameter({DType::kS32, {}});
  EXPECT_EQ(error_of([&] { autodiff::grad(x, {x}); }), "[grad] needs a float scalar, found f32[2]");
  EXPECT_EQ(error_of([&] { autodiff::grad(n, {x}); }), "[grad] needs a float scalar, found i32[]");
  EXPECT_EQ(error_of([&] { autodiff::vjp({x}, {n}, {x}); }),
            "[vjp] cotangent 0 is i32[], the output is f32[2]");
}

TEST(Gradients, WhatNothingDependsOnGetsZeros) {
  ir::Graph graph;
  const Value x = graph.parameter({DType::kF64, {2}}), y = graph.parameter({DType::kF64, {3}});
  graph.outputs = autodiff::grad(ir::sum_all(x), {y});
  const Tensor zeros = testing::run(graph, {Tensor(DType::kF64, {2}), Tensor(DType::kF64, {3})})[0];
  EXPECT_EQ(testing::values_of<double>(zeros), (std::vector<double>{0, 0, 0}));
}

TEST(Gradients, EqualExtremesShare) {
  ir::Graph graph;
  const Value x = graph.parameter({DType::kF64, {3}});
  const Value pair = ir::sum_all(ir::maximum(x, ir::full(graph, DType::kF64, {3}, 2)));
  graph.outputs = {autodiff::grad(ir::reduce_max(x, {0}), {x})[0], autodiff::grad(pair, {x})[0]};
  const auto out = testing::run(graph, {Tensor::of<double>(DType::kF64, {3}, {2, 1, 2})});
  EXPECT_EQ(testing::values_of<double>(out[0]), (std::vector<double>{0.5, 0, 0.5}));
  EXPECT_EQ(testing::values_of<double>(out[1]), (std::vector<double>{0.5, 0, 0.5}));
}

// A bfloat16 broadcast's gradient is summed in float32: 4096 ones would stop at 256 in bfloat16.
TEST(Gradients, NarrowFloatsAreSummedWide) {
  ir::Graph graph;
  const Value x = graph.parameter({DType::kBF16, {}});
  const Value wide = ir::cast(ir::broadcast_to(x, {4096}), DType::kF32);
  graph.outputs = {ir::cast(autodiff::grad(ir::sum_all(wide), {x})[0], DType::kF32)};
  const Tensor g = testing::run(graph, {Tensor(DType::kBF16, {})})[0];
  EXPECT_EQ(g.data<float>()[0], 4096);
}

// The gradient of an outer value is asked for inside of a region (gradient accumulation). w * w of
// the outer w would be computed outside, and its gradient be missing: that is refused.
TEST(Gradients, OfAnOuterValueInsideAScan) {
  ir::Graph graph;
  const ir::Scope scope(graph, "model");
  const Value w = graph.parameter({DType::kF64, {}}), xs = graph.parameter({DType::kF64, {3}});
  graph.outputs = ir::scan({ir::zeros_like(w)}, {xs}, {.length = 3}, [&](const Values& in) {
    EXPECT_EQ(
        error_of([&] { autodiff::grad(w * w * in[1], {w}); }),
        "[vjp] the gradient of a value of another trace is asked for; import it into the region "
        "and use what import() returns (in model)");
    const Value here = in[0].graph->import(w);
    return Values{in[0] + autodiff::grad(here * here * in[1], {here})[0]};
  });
  const auto out = testing::run(graph, {Tensor::of<double>(DType::kF64, {}, {5}),
                                        Tensor::of<double>(DType::kF64, {3}, {1, 2, 4})});
  EXPECT_EQ(out[0].data<double>()[0], 2 * 5 * 7);
}

struct RematCounts {
  int64_t tanh, dot;
  std::vector<double> gradient;
};

// y = tanh(x w); loss = sum(tanh(y w)^2), with the first product tagged "dot".
RematCounts remat_counts(bool remat, const std::vector<std::string>& saved, bool in_scan) {
  ir::Graph graph;
  const Value x = graph.parameter({DType::kF64, {2, 2}}),
              w = graph.parameter({DType::kF64, {2, 2}});
  const auto body = [](const Values& in) {
    const Value first = ir::checkpoint_name(ir::einsum("ij,jk->ik", in[0], in[1]), "dot");
    const Value y = ir::checkpoint_name(ir::tanh(first), "act");
    return Values{ir::tanh(ir::einsum("ij,jk->ik", y, in[1]))};
  };
  const auto layer = [&](Value in) {
    return remat ? ir::remat({in, w}, saved, body)[0] : body({in, w})[0];
  };
  Value y = x;
  if (in_scan) {
    y = ir::scan({x}, {}, {.length = 3}, [&](const Values& in) { return Values{layer(in[0])}; })[0];
  } else {
    y = layer(x);
  }
  const Value loss = ir::sum_all(y * y);
  graph.outputs = autodiff::grad(loss, {x, w});
  const auto optimised = ir::optimise(graph);
  RematCounts out{count(*optimised, OpKind::kTanh), count(*optimised, OpKind::kDotGeneral), {}};
  const auto tensors =
      testing::run(graph, {Tensor::of<double>(DType::kF64, {2, 2}, {0.5, -0.25, 1, 0.75}),
                           Tensor::of<double>(DType::kF64, {2, 2}, {0.3, 0.6, -0.9, 0.2})});
  for (const Tensor& t : tensors) {
    for (const double g : t.data<double>()) out.gradient.push_back(g);
  }
  return out;
}

void expect_same(const RematCounts& a, const RematCounts& b) {
  ASSERT_EQ(a.gradient.size(), b.gradient.size());
  for (size_t i = 0; i < a.gradient.size(); ++i) {
    EXPECT_NEAR(a.gradient[i], b.gradient[i], 1e-13 * std::abs(a.gradient[i]));
  }
}

// Forward: 2 tanh and 2 products; backward: 4 products. Recomputation adds to that.
TEST(Remat, RunsTheForwardPassAgain) {
  for (const bool in_scan : {false, true}) {
    SCOPED_TRACE(in_scan ? "in a scan" : "plain");
    const RematCounts plain = remat_counts(false, {}, in_scan);
    EXPECT_EQ(plain.tanh, 2);
    EXPECT_EQ(plain.dot, 6);
    const RematCounts all = remat_counts(true, {}, in_scan);
    EXPECT_EQ(all.tanh, 4);
    EXPECT_EQ(all.dot, 8);
    expect_same(plain, all);
  }
}

TEST(Remat, SavedTagsAreNotComputedAgain) {
  for (const bool in_scan : {false, true}) {
    SCOPED_TRACE(in_scan ? "in a scan" : "plain");
    const RematCounts all = remat_counts(true, {}, in_scan);
    const RematCounts dot = remat_counts(true, {"dot"}, in_scan);
    EXPECT_EQ(dot.tanh, 4);
    EXPECT_EQ(dot.dot, 7);
    expect_same(all, dot);
    const RematCounts act = remat_counts(true, {"act"}, in_scan);
    EXPECT_EQ(act.tanh, 3);  // tanh's own rule uses the saved value too
    EXPECT_EQ(act.dot, 7);
    expect_same(all, act);
    const RematCounts other = remat_counts(true, {"no_such_tag"}, in_scan);
    EXPECT_EQ(other.dot, 8);
  }
}

// XLA, too, must keep the second run apart and forget the first: the program's memory says so.
TEST(Remat, TakesLessMemory) {
  const auto temporaries = [](bool remat, const std::vector<std::string>& saved) {
    ir::Graph graph;
    const Value x = graph.parameter({DType::kF32, {64, 64}});
    Value y = x;
    const Value w = graph.parameter({DType::kF32, {64, 64}});
    const auto layer = [&](const Values& in) {
      Value z = ir::checkpoint_name(ir::einsum("ij,jk->ik", in[0], w), "dot");
      for (int i = 0; i < 4; ++i) z = ir::tanh(ir::einsum("ij,jk->ik", ir::sin(z), w));
      return Values{z};
    };
    for (int i = 0; i < 8; ++i) y = remat ? ir::remat({y}, saved, layer)[0] : layer({y})[0];
    graph.outputs = autodiff::grad(ir::sum_all(y), {x});
    return testing::Program(graph).executable().memory_stats().temporaries / (64 * 64 * 4);
  };
  const int64_t plain = temporaries(false, {});
  EXPECT_GE(plain, 8 * 5);
  EXPECT_LT(temporaries(true, {}), plain / 2);
  EXPECT_LT(temporaries(true, {"dot"}), plain / 2);
}

TEST(Remat, WithoutAGradientIsJustItsBody) {
  ir::Graph graph;
  const Value x = graph.parameter({DType::kF64, {2}});
  graph.outputs = ir::remat({x}, {}, [](const Values& in) { return Values{ir::tanh(in[0])}; });
  const auto optimised = ir::optimise(graph);
  EXPECT_EQ(count(*optimised, OpKind::kRemat), 0);
  EXPECT_EQ(count(*optimised, OpKind::kBarrier), 0);
  EXPECT_EQ(count(*optimised, OpKind::kTanh), 1);
}

// custom_vjp inside of remat, its result tagged: the saved result feeds the rule, so that the
// forward function (here: exp) appears once.
int64_t custom_vjp_count(const std::vector<std::string>& saved, bool in_scan) {
  ir::Graph graph;
  const Value x = graph.parameter({DType::kF64, {2}});
  const auto layer = [&](Value v) {
    return ir::remat({v}, saved, [](const Values& in) {
      const Values y = ir::custom_vjp(
          "exp", in, [](const Values& a) { return Values{ir::exp(a[0])}; },
          [](const Values&, const Values& results, const Values& cotangents) {
            return Values{results[0] * cotangents[0]};
          });
      return Values{ir::sin(ir::checkpoint_name(y[0], "out"))};
    })[0];
  };
  Value y = x;
  if (in_scan) {
    y = ir::scan({x}, {}, {.length = 3}, [&](const Values& in) { return Values{layer(in[0])}; })[0];
  } else {
    y = layer(x);
  }
  graph.outputs = autodiff::grad(ir::sum_all(y), {x});
  graph.outputs.push_back(y);
  return count(*ir::optimise(graph), OpKind::kExp);
}

TEST(Remat, CustomVjpGetsTheSavedResult) {
  for (const bool in_scan : {false, true}) {
    EXPECT_EQ(custom_vjp_count({}, in_scan), 2);
    EXPECT_EQ(custom_vjp_count({"out"}, in_scan), 1);
  }
}

// What the backward pass gets from the forward scan: the carries and what cannot be computed from
// loop-invariant values; not the xs, which are there already.
TEST(Scan, StacksOnlyWhatTheBackwardPassNeeds) {
  ir::Graph graph;
  const Value x = graph.parameter({DType::kF64, {}}), xs = graph.parameter({DType::kF64, {4}});
  const Value w = graph.parameter({DType::kF64, {}});
  const Value y = ir::scan({x}, {xs}, {.length = 4}, [&](const Values& in) {
    return Values{in[0] * in[1] + (w * 2.0) * in[0]};
  })[0];
  graph.outputs = autodiff::grad(y, {x, xs, w});
  const auto optimised = ir::optimise(graph);
  std::vector<size_t> results;
  for (const ir::Node& node : optimised->nodes()) {
    if (node.kind == OpKind::kScan) results.push_back(node.results.size());
  }
  EXPECT_EQ(results, (std::vector<size_t>{2, 3}));  // {carry, its stack}, {d carry, d w, d xs}
}

}  // namespace
}  // namespace mt
