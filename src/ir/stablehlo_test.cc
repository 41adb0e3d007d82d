// What is printed, whole. That XLA takes it is shown by tests/ir_device_test.cc.
#include "ir/stablehlo.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ir/ops.h"
#include "ir/passes.h"

namespace mt::ir {
namespace {

using Values = std::vector<Value>;

std::string print(const Graph& graph, ProgramSpec spec = {.locations = false}) {
  return to_stablehlo(*optimise(graph), spec);
}

TEST(Stablehlo, AProgram) {
  Graph g;
  const Value x = g.parameter({DType::kF32, {2, 3}}, "x"),
              w = g.parameter({DType::kBF16, {3}}, "w");
  const Value doubled =
      tanh(x) * 2.0;  // nodes come in the order of calls; that of arguments is open
  const Value product = einsum("ij,j->i", doubled, cast(w, DType::kF32));
  g.outputs = {product, reduce_max(x, {0, 1})};
  EXPECT_EQ(
      print(g),
      R"(module @main attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<3xbf16>) -> (tensor<2xf32>, tensor<f32>) {
    %0 = "stablehlo.tanh"(%arg0) : (tensor<2x3xf32>) -> (tensor<2x3xf32>)
    %1 = "stablehlo.constant"() {value = dense<2.00000000000000000e+00> : tensor<f32>} : () -> (tensor<f32>)
    %2 = "stablehlo.broadcast_in_dim"(%1) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> (tensor<2x3xf32>)
    %3 = "stablehlo.multiply"(%0, %2) : (tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<2x3xf32>)
    %4 = "stablehlo.convert"(%arg1) : (tensor<3xbf16>) -> (tensor<3xf32>)
    %5 = "stablehlo.dot_general"(%3, %4) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x3xf32>, tensor<3xf32>) -> (tensor<2xf32>)
    %6 = "stablehlo.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> (tensor<f32>)
    %10 = "stablehlo.reduce"(%arg0, %6) ({ ^bb0(%7: tensor<f32>, %8: tensor<f32>): %9 = "stablehlo.maximum"(%7, %8) : (tensor<f32>, tensor<f32>) -> tensor<f32> "stablehlo.return"(%9) : (tensor<f32>) -> () }) {dimensions = array<i64: 0, 1>} : (tensor<2x3xf32>, tensor<f32>) -> (tensor<f32>)
    "func.return"(%5, %10) : (tensor<2xf32>, tensor<f32>) -> ()
  }
}
)");
}

TEST(Stablehlo, ShardingDonationAndLocations) {
  Graph g;
  const Value x = g.parameter({DType::kF32, {8, 4}}, "state/x");
  const Scope scope(g, "decoder");
  g.outputs = {add(sharding_constraint(x, {{{}, {"fsdp", "tensor", "data"}}}, {"/a/src/b.cc", 3}),
                   x, {"/a/src/b.cc", 4})};
  const ProgramSpec spec{.name = "jit_step",
                         .mesh = {{{"data", 1}, {"fsdp", 2}, {"tensor", 2}}},
                         .arguments = {sharding::PartitionSpec{{{"fsdp"}, {"data"}}}},
                         .results = {sharding::PartitionSpec{{{"fsdp"}, {}}}},
                         .donated = {0}};
  EXPECT_EQ(
      print(g, spec),
      R"(module @jit_step attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["fsdp"=2, "tensor"=2]>
  func.func public @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {}]>, tf.aliasing_output = 0 : i32} loc(#loc0)) -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {}]>}) {
    %0 = sdy.sharding_constraint %arg0 <@mesh, [{}, {"fsdp", "tensor"}]> : tensor<8x4xf32> loc(#loc1)
    %1 = "stablehlo.add"(%0, %arg0) : (tensor<8x4xf32>, tensor<8x4xf32>) -> (tensor<8x4xf32>) loc(#loc2)
    "func.return"(%1) : (tensor<8x4xf32>) -> ()
  }
}
#loc0 = loc("state/x")
#loc1 = loc("decoder/sharding_constraint"("src/b.cc":3:1))
#loc2 = loc("decoder/add"("src/b.cc":4:1))
)");
}

TEST(Stablehlo, OneDeviceHasNoShardings) {
  Graph g;
  const Value x = g.parameter({DType::kF32, {8}}, "x");
  const Value y = manual_computation(
      {sharding_constraint(x, {{{"fsdp"}}})}, {{{{{"fsdp"}}}}, {{{{"fsdp"}}}}, {"fsdp"}}, {},
      {{DType::kF32, {8}}},
      [](const Values& in) { return Values{all_reduce(tanh(in[0]), {"fsdp"})}; })[0];
  g.outputs = {y};
  const std::string text = print(g, {.mesh = {{{"fsdp", 1}}},
                                     .arguments = {sharding::PartitionSpec{{{"fsdp"}}}},
                                     .locations = false});
  EXPECT_EQ(
      text,
      R"(module @main attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<8xf32>) -> (tensor<8xf32>) {
    %0 = "stablehlo.tanh"(%arg0) : (tensor<8xf32>) -> (tensor<8xf32>)
    "func.return"(%0) : (tensor<8xf32>) -> ()
  }
}
)");
}

// The text between "dense<" and ">" of the only constant.
std::string dense(const std::function<Value(Graph&)>& make) {
  Graph g;
  g.outputs = {make(g)};
  const std::string text = print(g);
  const size_t from = text.find("dense<") + 6;
  return text.substr(from, text.find("> :", from) - from);
}

std::string splat(DType dtype, double value) {
  return dense([&](Graph& g) { return full(g, dtype, {}, value); });
}

TEST(Stablehlo, Splats) {
  EXPECT_EQ(splat(DType::kF32, 0.1), "1.00000001490116119e-01");  // rounded to the dtype first
  EXPECT_EQ(splat(DType::kF64, 0.1), "1.00000000000000006e-01");
  EXPECT_EQ(splat(DType::kBF16, 0.1), "1.00097656250000000e-01");
  EXPECT_EQ(splat(DType::kF16, 0.1), "9.99755859375000000e-02");
  EXPECT_EQ(splat(DType::kF32, -0.0), "-0.00000000000000000e+00");
  EXPECT_EQ(splat(DType::kF64, INFINITY), "0x7FF0000000000000");
  EXPECT_EQ(splat(DType::kF32, -INFINITY), "0xFF800000");
  EXPECT_EQ(splat(DType::kBF16, INFINITY), "0x7F80");
  EXPECT_EQ(splat(DType::kF16, -INFINITY), "0xFC00");
  EXPECT_EQ(splat(DType::kF16, 65520), "0x7C00");  // rounds past the largest
  EXPECT_EQ(splat(DType::kF32, 1e39), "0x7F800000");
  EXPECT_EQ(splat(DType::kF32, NAN).substr(2), "7FC00000");
  EXPECT_EQ(splat(DType::kS8, -128), "-128");
  EXPECT_EQ(splat(DType::kU32, 4294967295.0), "4294967295");
  EXPECT_EQ(splat(DType::kU64, 0x1p63), "9223372036854775808");
  EXPECT_EQ(splat(DType::kPred, 1), "true");
}

TEST(Stablehlo, Literals) {
  const auto literal = [](const Tensor& t) {
    return dense([&](Graph& g) { return constant(g, t); });
  };
  EXPECT_EQ(literal(Tensor::of<float>(DType::kF32, {2}, {1, -2})), "\"0x0000803F000000C0\"");
  EXPECT_EQ(literal(Tensor::of<uint8_t>(DType::kU8, {3}, {1, 2, 255})), "\"0x0102FF\"");
  EXPECT_EQ(literal(Tensor(DType::kF32, {0, 3})), "");
  EXPECT_EQ(literal(Tensor::of<uint8_t>(DType::kPred, {}, {1})), "true");
  EXPECT_EQ(literal(Tensor::of<uint8_t>(DType::kPred, {2}, {1, 0})), "[true, false]");
  EXPECT_EQ(literal(Tensor::of<uint8_t>(DType::kPred, {2, 1, 2}, {1, 0, 0, 1})),
            "[[[true, false]], [[false, true]]]");
}

TEST(Stablehlo, ReductionsStartAtTheLowestNumber) {
  const auto start = [](DType dtype, bool max) {
    return dense([&](Graph& g) {
      const Value x = g.parameter({dtype, {2}});
      return max ? reduce_max(x, {0}) : reduce_min(x, {0});
    });
  };
  EXPECT_EQ(start(DType::kS32, true), "-2147483648");
  EXPECT_EQ(start(DType::kS32, false), "2147483647");
  EXPECT_EQ(start(DType::kU32, true), "0");
  EXPECT_EQ(start(DType::kU32, false), "4294967295");
  EXPECT_EQ(start(DType::kS64, true), "-9223372036854775808");
  EXPECT_EQ(start(DType::kS64, false), "9223372036854775807");
  EXPECT_EQ(start(DType::kU64, false), "18446744073709551615");
  EXPECT_EQ(start(DType::kS8, true), "-128");
  EXPECT_EQ(start(DType::kU8, false), "255");
  EXPECT_EQ(start(DType::kF16, true), "0xFC00");
  EXPECT_EQ(start(DType::kPred, true), "false");
}

TEST(Stablehlo, TheSameGraphGivesTheSameText) {
  const auto text = [] {
    Graph g;
    const Value x = g.parameter({DType::kF32, {3}}, "x");
    g.outputs = scan({x}, {}, {.length = 2}, [](const Values& in) { return Values{tanh(in[0])}; });
    return print(g, {});
  };
  EXPECT_EQ(text(), text());
}

}  // namespace
}  // namespace mt::ir
