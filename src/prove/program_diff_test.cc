// Readers and comparison of program text, on text alone.
#include "prove/program_diff.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"

namespace mt::prove {
namespace {

constexpr const char* kStableHlo = R"(module @jit_step attributes {mhlo.num_partitions = 2 : i32} {
  sdy.mesh @mesh = <["fsdp"=2]>
  func.func public @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {}]>} loc(#loc0), %arg1: tensor<4xf32> loc("bias")) -> (tensor<8xf32> {jax.result_info = "a, b"}) {
    %0 = "stablehlo.constant"() {value = dense<2.0> : tensor<f32>} : () -> (tensor<f32>) loc(#loc1)
    %1:2 = "stablehlo.optimization_barrier"(%arg0, %arg1) : (tensor<8x4xf32>, tensor<4xf32>) -> (tensor<8x4xf32>, tensor<4xf32>)
    %5 = "stablehlo.reduce"(%1#0, %0) ({ ^bb0(%2: tensor<f32>, %3: tensor<f32>): %4 = "stablehlo.add"(%2, %3) : (tensor<f32>, tensor<f32>) -> tensor<f32> "stablehlo.return"(%4) : (tensor<f32>) -> () }) {dimensions = array<i64: 1>} : (tensor<8x4xf32>, tensor<f32>) -> (tensor<8xf32>) loc(#loc2)
    "func.return"(%5) : (tensor<8xf32>) -> ()
  }
}
#loc0 = loc("decoder/weight")
#loc1 = loc("decoder/norm/constant"("src/layers/norm.cc":12:1))
#loc2 = loc("decoder/norm/reduce"(#loc3))
#loc3 = loc("src/layers/norm.cc":20:5 to :9)
)";

constexpr const char* kHlo =
    R"(HloModule jit_step, is_scheduled=true, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

FileNames
1 "src/layers/norm.cc"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=1 end_column=1}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

%fused (param_0: f32[8]) -> f32[8] {
  %param_0 = f32[8]{0} parameter(0)
  %constant.2 = f32[] constant(2)
  %broadcast.1 = f32[8]{0} broadcast(%constant.2), dimensions={}, metadata={op_name="decoder/norm/multiply" stack_frame_id=1}
  ROOT %multiply.1 = f32[8]{0} multiply(%param_0, %broadcast.1), metadata={op_name="decoder/norm/multiply" source_file="a.py" source_line=7}
}

ENTRY %main.4 (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0), metadata={op_name="x"}
  ROOT %fusion = (f32[8]{0}, /*index=1*/f32[8]{0}) fusion(%x), kind=kLoop, calls=%fused, channel_id=7
}
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  size_t count = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
    ++count;
  }
  EXPECT_GT(count, 0U) << from;
  return text;
}

ProgramDiff diff_of(const std::string& a, const std::string& b) {
  return compare(read_program(a, "a"), read_program(b, "b"));
}

TEST(ProgramDiff, NamesIdsAndMetadataAreNoDifference) {
  std::string other = replaced(kStableHlo, "%5", "%result");
  other = replaced(other, "@jit_step", "@another");
  other = replaced(other, "norm.cc", "elsewhere.cc");
  other = replaced(other, "%arg0", "%x");
  EXPECT_TRUE(diff_of(kStableHlo, other).equal) << to_text(diff_of(kStableHlo, other));

  other = replaced(kHlo, "%fused", "%renamed.3");
  other = replaced(other, "channel_id=7", "channel_id=12");
  other = replaced(other, "decoder/norm", "before");
  other = replaced(other, "stack_frame_id=1", "stack_frame_id=9");
  other = replaced(other, "HloModule jit_step", "HloModule other");
  EXPECT_TRUE(diff_of(kHlo, other).equal) << to_text(diff_of(kHlo, other));
}

struct Planted {
  std::string from, to, kind, module, source;
};

void expect_found(const std::string& text, const Planted& p) {
  const ProgramDiff d = diff_of(text, replaced(text, p.from, p.to));
  ASSERT_FALSE(d.equal) << p.to;
  ASSERT_TRUE(d.at_a && d.at_b) << p.to;
  EXPECT_EQ(d.at_a->op.kind, p.kind) << p.to;
  EXPECT_EQ(d.at_a->module, p.module) << p.to;
  EXPECT_EQ(d.at_a->source, p.source) << p.to;
  EXPECT_NE(to_text(d).find(p.module), std::string::npos) << to_text(d);
}

TEST(ProgramDiff, PlantedChangesOfStableHloAreFoundAndTheModuleNamed) {
  const std::string norm = "src/layers/norm.cc";
  expect_found(kStableHlo, {"array<i64: 1>", "array<i64: 0>", "stablehlo.reduce",
                            "decoder/norm/reduce", norm + ":20"});
  expect_found(kStableHlo, {"dense<2.0>", "dense<2.5>", "stablehlo.constant",
                            "decoder/norm/constant", norm + ":12"});
  expect_found(kStableHlo,
               {"%arg1: tensor<4xf32>", "%arg1: tensor<4xbf16>", "argument", "bias", ""});
  expect_found(kStableHlo,
               {"[{\"fsdp\"}, {}]", "[{}, {\"fsdp\"}]", "argument", "decoder/weight", ""});
}

TEST(ProgramDiff, PlantedChangesOfHloAreFoundAndTheModuleNamed) {
  // Nothing is said of the constant: its user's module.
  expect_found(kHlo, {"constant(2)", "constant(3)", "constant", "decoder/norm/multiply",
                      "src/layers/norm.cc:12"});
  expect_found(kHlo, {"multiply(%param_0, %broadcast.1)", "multiply(%broadcast.1, %param_0)",
                      "multiply", "decoder/norm/multiply", "a.py:7"});
  expect_found(kHlo, {"kind=kLoop", "kind=kInput", "fusion", "x", ""});
  const ProgramDiff d = diff_of(kHlo, replaced(kHlo, "is_scheduled=true", "is_scheduled=false"));
  ASSERT_TRUE(d.at_a.has_value());
  EXPECT_EQ(d.at_a->op.kind, "module");
}

TEST(ProgramDiff, OneThatEndsEarlier) {
  const std::string shorter = replaced(kHlo, "ENTRY %main.4 (x: f32[8]) -> f32[8] {\n  %x",
                                       "%main.4 (x: f32[8]) -> f32[8] {\n  ROOT %x");
  const std::string cut = shorter.substr(0, shorter.find("  ROOT %fusion")) + "}\n";
  const ProgramDiff d = diff_of(kHlo, cut);
  EXPECT_FALSE(d.equal);
  EXPECT_EQ(d.differing, -1);
  EXPECT_EQ(d.counts.at("fusion"), (std::pair<int64_t, int64_t>{1, 0}));
}

std::string refusal(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(ProgramText, FaultsNameThePlace) {
  const auto refused = [](const std::string& text) {
    return refusal([&] { read_program(text, "p"); });
  };
  EXPECT_EQ(refused(""), "p:1: no program: the text is empty");
  EXPECT_EQ(refused("\nhello\n"), "p:2: no program: expected 'module' (StableHLO) or 'HloModule'");
  EXPECT_EQ(refused("module {\n  \"a.b\"(%0) : () -> ()\n}\n"),
            "p:2: %0 is used before it is defined");
  EXPECT_EQ(refused("module {\n  %0 = \"a.b\"() : ( -> ()\n}\n"),
            "p:3: '}' doesn't close the '(' of line 2");
  EXPECT_EQ(refused("module {\n  %0 = \"a.b() : () -> ()\n}\n"), "p:2: a string isn't closed");
  EXPECT_EQ(refused("module {\n"), "p:1: '{' is never closed");
  EXPECT_EQ(refused("module {\n}\n}\n"), "p:3: '}' closes nothing");
  EXPECT_EQ(refused("module {\n!?\n}\n"), "p:2: expected an operation");
  EXPECT_EQ(refused("#loc0 = loc(\"x\")\n"), "p:1: no program: 'module' is missing");
  EXPECT_EQ(refused("HloModule x\nfoo\n"), "p:2: expected a computation, '%NAME (...) -> ... {'");
  EXPECT_EQ(refused("HloModule x\n%c () -> f32[] {\n  add.1 = f32[] add(a, b)\n}\n"),
            "p:3: expected '%NAME = TYPE OPERATION(...)'");
  EXPECT_EQ(refused("HloModule x\n%c () -> f32[] {\n  %a = f32[] negate(%b)\n}\n"),
            "p:3: %b is never defined");
  EXPECT_EQ(refused("HloModule x\n"), "p:1: the module has no computation");
  EXPECT_EQ(refusal([] { diff_of(kHlo, kStableHlo); }),
            "a is HLO and b is StableHLO: only programs of one form can be compared");
}

}  // namespace
}  // namespace mt::prove
