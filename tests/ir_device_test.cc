// Printed programs run by the real CPU plugin: every op kind, constants of every dtype, random
// numbers, several devices.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "base/random.h"
#include "ir/ops.h"
#include "ir/random.h"
#include "support/golden.h"
#include "support/run_graph.h"

namespace mt::ir {
namespace {

using testing::run;
using testing::values_of;
using Values = std::vector<Value>;
using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;

constexpr float kInf = std::numeric_limits<float>::infinity();

Tensor f32(const Shape& shape, const Floats& v) { return Tensor::of<float>(DType::kF32, shape, v); }
Tensor s32(const Shape& shape, const Ints& v) { return Tensor::of<int32_t>(DType::kS32, shape, v); }

// fn of constants, computed by the plugin.
Tensor compute(const std::vector<Tensor>& inputs, const std::function<Value(const Values&)>& fn) {
  Graph g;
  Values in;
  for (const Tensor& t : inputs) in.push_back(g.parameter({t.dtype(), t.shape()}));
  g.outputs = {fn(in)};
  return run(g, inputs)[0];
}

Floats floats(const Floats& x, const std::function<Value(Value)>& fn) {
  const Tensor input = f32({static_cast<int64_t>(x.size())}, x);
  return values_of<float>(compute({input}, [&](const Values& in) { return fn(in[0]); }));
}

// An op by its name.
Floats floats(const Floats& x, Value (*op)(Value, Site)) {
  return floats(x, [op](Value v) { return op(v, Site{}); });
}

Ints ints(const Ints& x, const Ints& y, const std::function<Value(Value, Value)>& fn) {
  const auto n = static_cast<int64_t>(x.size());
  return values_of<int32_t>(
      compute({s32({n}, x), s32({n}, y)}, [&](const Values& in) { return fn(in[0], in[1]); }));
}

Value to_s32(Value bools) { return cast(bools, DType::kS32); }

TEST(IrDevice, ElementwiseValues) {
  const Floats x{-1.5F, -0.0F, 0.5F, 2.5F};
  EXPECT_EQ(floats(x, negate), (Floats{1.5F, 0, -0.5F, -2.5F}));
  EXPECT_EQ(floats(x, abs), (Floats{1.5F, 0, 0.5F, 2.5F}));
  EXPECT_EQ(floats(x, sign), (Floats{-1, 0, 1, 1}));
  EXPECT_EQ(floats(x, floor), (Floats{-2, 0, 0, 2}));
  EXPECT_EQ(floats(x, square), (Floats{2.25F, 0, 0.25F, 6.25F}));
  EXPECT_EQ(floats({4, 0.25F}, rsqrt), (Floats{0.5F, 2}));
  EXPECT_EQ(floats({4, 0.25F}, sqrt), (Floats{2, 0.5F}));
  EXPECT_EQ(
      floats({7, -7}, [](Value v) { return remainder(v, full(*v.graph, DType::kF32, {}, 3)); }),
      (Floats{1, -1}));
  EXPECT_EQ(floats({1, 2}, [](Value v) { return 1.0 - v / 2.0; }), (Floats{0.5F, 0}));
  const auto near = [](const auto& fn, double (*reference)(double)) {
    const Floats at{0.25F, 0.75F, 1.5F};
    const Floats found = floats(at, fn);
    for (size_t i = 0; i < at.size(); ++i) {
      EXPECT_NEAR(found[i], reference(at[i]), 3e-7 * (1 + std::abs(reference(at[i]))));
    }
  };
  near(exp, std::exp);
  near(log, std::log);
  near(log1p, std::log1p);
  near(tanh, std::tanh);
  near(sin, std::sin);
  near(cos, std::cos);
  near([](Value v) { return power(v, v); }, [](double v) { return std::pow(v, v); });
}

TEST(IrDevice, IntegerAndBoolValues) {
  const Ints a{6, -7, 5}, b{3, 2, -2};
  EXPECT_EQ(ints(a, b, [](Value x, Value y) { return add(x, y); }), (Ints{9, -5, 3}));
  EXPECT_EQ(ints(a, b, [](Value x, Value y) { return divide(x, y); }), (Ints{2, -3, -2}));
  EXPECT_EQ(ints(a, b, [](Value x, Value y) { return remainder(x, y); }), (Ints{0, -1, 1}));
  EXPECT_EQ(ints(a, b, [](Value x, Value y) { return maximum(x, y); }), (Ints{6, 2, 5}));
  EXPECT_EQ(ints(a, b, [](Value x, Value y) { return minimum(x, y); }), (Ints{3, -7, -2}));
  EXPECT_EQ(ints(a, b, [](Value x, Value y) { return logical_and(x, y); }), (Ints{2, 0, 4}));
  EXPECT_EQ(ints(a, b, [](Value x, Value y) { return logical_or(x, y); }), (Ints{7, -5, -1}));
  EXPECT_EQ(ints(a, b, [](Value x, Value y) { return logical_xor(x, y); }), (Ints{5, -5, -5}));
  EXPECT_EQ(ints({1, -1}, {4, 4}, [](Value x, Value y) { return shift_left(x, y); }),
            (Ints{16, -16}));
  EXPECT_EQ(ints({16, -1}, {4, 28}, [](Value x, Value y) { return shift_right_logical(x, y); }),
            (Ints{1, 15}));
  EXPECT_EQ(ints(a, b, [](Value x, Value) { return logical_not(x); }), (Ints{-7, 6, -6}));
  const std::vector<std::pair<Direction, Ints>> directions{
      {Direction::kEq, {0, 1, 0}}, {Direction::kNe, {1, 0, 1}}, {Direction::kLt, {0, 0, 1}},
      {Direction::kLe, {0, 1, 1}}, {Direction::kGt, {1, 0, 0}}, {Direction::kGe, {1, 1, 0}}};
  for (const auto& [direction, expected] : directions) {
    EXPECT_EQ(ints({2, 3, 4}, {1, 3, 5},
                   [d = direction](Value x, Value y) { return to_s32(compare(x, d, y)); }),
              expected);
  }
  const Tensor x = f32({4}, {1, kInf, -kInf, std::nanf("")});
  EXPECT_EQ(
      values_of<int32_t>(compute({x}, [](const Values& v) { return to_s32(is_finite(v[0])); })),
      (Ints{1, 0, 0, 0}));
  EXPECT_EQ(values_of<int32_t>(compute({f32({2}, {1, -2})},
                                       [](const Values& v) { return bitcast(v[0], DType::kS32); })),
            (Ints{0x3F800000, std::bit_cast<int32_t>(-2.0F)}));
}

TEST(IrDevice, ShapeValues) {
  const Tensor m = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto of = [&](const std::function<Value(Value)>& fn) {
    return values_of<float>(compute({m}, [&](const Values& in) { return fn(in[0]); }));
  };
  const auto at = [](Value x, int32_t i) { return constant(*x.graph, s32({}, {i})); };
  EXPECT_EQ(of([](Value x) { return transpose(x, {1, 0}); }), (Floats{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(of([](Value x) { return slice(x, {0, 0}, {2, 3}, {1, 2}); }), (Floats{1, 3, 4, 6}));
  EXPECT_EQ(of([](Value x) {
              return pad(x, 9, {0, -1}, {0, 1}, {0, 1});
            }),
            (Floats{9, 2, 9, 3, 9, 9, 5, 9, 6, 9}));
  EXPECT_EQ(of([&](Value x) {
              return dynamic_slice(x, {at(x, 7), at(x, -4)}, {1, 2});
            }),
            (Floats{4, 5}));
  EXPECT_EQ(of([&](Value x) {
              return dynamic_update_slice(x, full(*x.graph, DType::kF32, {1, 2}, 0),
                                          {at(x, 7), at(x, 9)});
            }),
            (Floats{1, 2, 3, 4, 0, 0}));
  EXPECT_EQ(of([](Value x) {
              return take_rows(x, constant(*x.graph, s32({3}, {-5, 1, 9})));
            }),
            (Floats{1, 2, 3, 4, 5, 6, 4, 5, 6}));
  EXPECT_EQ(of([](Value x) {
              return scatter_add_rows(x, constant(*x.graph, s32({4}, {1, 1, 2, -1})),
                                      full(*x.graph, DType::kF32, {4, 3}, 10));
            }),
            (Floats{1, 2, 3, 24, 25, 26}));
  EXPECT_EQ(of([](Value x) {
              return concatenate({x, x}, 1);
            }),
            (Floats{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}));
  EXPECT_EQ(of([](Value x) {
              return iota(*x.graph, DType::kF32, {2, 2}, 1);
            }),
            (Floats{0, 1, 0, 1}));
  EXPECT_EQ(of([](Value x) {
              return broadcast_in_dim(slice_axis(x, 0, 1, 2), {2, 2, 3}, {1, 2});
            }),
            (Floats{4, 5, 6, 4, 5, 6, 4, 5, 6, 4, 5, 6}));
}

TEST(IrDevice, ContractionValues) {
  const Tensor m = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto of = [&](const std::function<Value(Value)>& fn) {
    return values_of<float>(compute({m}, [&](const Values& in) { return fn(in[0]); }));
  };
  EXPECT_EQ(of([](Value x) { return einsum("ij,kj->ki", x, x); }), (Floats{14, 32, 32, 77}));
  EXPECT_EQ(of([](Value x) { return einsum("ij,ij->i", x, x); }), (Floats{14, 77}));
  EXPECT_EQ(of([](Value x) { return reduce_sum(x, {0}); }), (Floats{5, 7, 9}));
  EXPECT_EQ(of([](Value x) { return reduce_max(-x, {1}); }), (Floats{-1, -4}));
  EXPECT_EQ(of([](Value x) { return reduce_min(x, {0, 1}); }), (Floats{1}));
  EXPECT_EQ(of([](Value x) { return mean(x, {-1}, true); }), (Floats{2, 5}));
  const Tensor ties = f32({2, 4}, {1, 3, 3, 0, -1, -1, -2, -1});
  EXPECT_EQ(values_of<int32_t>(compute({ties}, [](const Values& in) { return argmax(in[0], 1); })),
            (Ints{1, 0}));
}

template <typename T>
void check_extremes(DType dtype) {
  const T low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  const auto reduced = [&](T value, bool max) {
    const Tensor x = Tensor::of<T>(dtype, {2}, {value, value});
    return compute({x},
                   [&](const Values& in) {
                     return max ? reduce_max(in[0], {0}) : reduce_min(in[0], {0});
                   })
        .template data<T>()[0];
  };
  EXPECT_EQ(reduced(low, true), low) << name(dtype);
  EXPECT_EQ(reduced(high, false), high) << name(dtype);
}

TEST(IrDevice, ReductionsOfExtremeIntegers) {
  check_extremes<int8_t>(DType::kS8);
  check_extremes<uint8_t>(DType::kU8);
  check_extremes<int32_t>(DType::kS32);
  check_extremes<uint32_t>(DType::kU32);
  check_extremes<int64_t>(DType::kS64);
  check_extremes<uint64_t>(DType::kU64);
}

// --- constants

constexpr std::array kDtypes{DType::kPred, DType::kS8,  DType::kS32, DType::kS64,
                             DType::kU8,   DType::kU32, DType::kU64, DType::kF16,
                             DType::kBF16, DType::kF32, DType::kF64};

Tensor patterned(DType dtype, const Shape& shape) {
  Tensor t(dtype, shape);
  uint8_t next = 17;
  for (std::byte& b : t.mutable_bytes()) {
    b = static_cast<std::byte>(dtype == DType::kPred ? (next >> 3) & 1 : next & 0x3F);  // no NaN
    next = static_cast<uint8_t>(next * 5 + 3);
  }
  return t;
}

TEST(IrDevice, LiteralsOfEveryDtypeKeepTheirBytes) {
  Graph g;
  std::vector<Tensor> tensors;
  for (const DType dtype : kDtypes) {
    for (const Shape& shape :
         {Shape{}, Shape{1}, Shape{7}, Shape{2, 3}, Shape{3, 1, 5}, Shape{0}, Shape{2, 0, 3}}) {
      tensors.push_back(patterned(dtype, shape));
      g.outputs.push_back(constant(g, tensors.back()));
    }
  }
  const std::vector<Tensor> out = run(g);
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(values_of<std::byte>(Tensor(DType::kU8, {static_cast<int64_t>(out[i].bytes().size())},
                                          out[i].bytes(), nullptr)),
              std::vector<std::byte>(tensors[i].bytes().begin(), tensors[i].bytes().end()))
        << name(tensors[i].dtype()) << mt::to_string(tensors[i].shape());
  }
}

TEST(IrDevice, SplatsOfEveryDtype) {
  Graph g;
  const std::vector<double> values{0,    1,     -0.0,     0.1,       65504, 3e38,
                                   1e-7, 1e-40, INFINITY, -INFINITY, NAN,   1e300};
  std::vector<Tensor> expected;
  for (const DType dtype : kDtypes) {
    for (const double v : values) {
      if (!is_float(dtype) && v != 0 && v != 1) continue;
      g.outputs.push_back(full(g, dtype, {}, v));
      expected.push_back(is_float(dtype) || is_integer(dtype)
                             ? Tensor::of<double>(DType::kF64, {}, {v}).cast(dtype)
                             : Tensor::of<uint8_t>(DType::kPred, {}, {v != 0}));
    }
  }
  const std::vector<Tensor> out = run(g);
  for (size_t i = 0; i < out.size(); ++i) {
    const Tensor found = is_float(out[i].dtype()) ? out[i].cast(DType::kF64) : out[i];
    if (is_float(out[i].dtype()) && std::isnan(expected[i].cast(DType::kF64).data<double>()[0])) {
      EXPECT_TRUE(std::isnan(found.data<double>()[0])) << name(out[i].dtype());
      continue;
    }
    EXPECT_TRUE(
        std::equal(out[i].bytes().begin(), out[i].bytes().end(), expected[i].bytes().begin()))
        << i << " " << name(out[i].dtype());
  }
}

// --- programs

// All that a program can hold, on a mesh of fsdp 2 x tensor 2.
std::shared_ptr<Graph> whole_program(const sharding::Mesh& mesh) {
  auto graph = std::make_shared<Graph>();
  Graph& g = *graph;
  const Value x = g.parameter({DType::kF32, {8, 4}}, "x"),
              w = g.parameter({DType::kF32, {4, 4}}, "w");
  const Value table = g.parameter({DType::kF32, {16, 4}}, "table");
  const Value ids = g.parameter({DType::kS32, {8}}, "ids");
  const Scope scope(g, "model");
  const Value rows = take_rows(table, ids);
  const Value h = sharding_constraint(x + rows, {{{"fsdp"}, {"tensor"}}});
  const Values scanned = scan({h}, {w}, {.length = 4, .y_axes = {1}}, [&](const Values& in) {
    const Scope layer(*in[0].graph, "layers");
    const Value next = tanh(in[0] * in[1]) + rows;
    return Values{next, reduce_sum(next, {1})};
  });
  const Values looped = while_loop(
      {scanned[0], full(g, DType::kS32, {}, 0)},
      [](const Values& in) {
        return Values{compare(in[1], Direction::kLt, full(*in[1].graph, DType::kS32, {}, 3))};
      },
      [](const Values& in) {
        return Values{in[0] * 0.5, in[1] + 1.0};
      });
  const Value summed =
      manual_computation({looped[0]}, {{{{{"fsdp"}, {}}}}, {{{{}, {}}}}, {"fsdp"}}, mesh,
                         {{DType::kF32, {1, 4}}}, [](const Values& in) {
                           return Values{all_reduce(reduce_sum(in[0], {0}, true), {"fsdp"})};
                         })[0];
  const Value updated = scatter_add_rows(table, ids, broadcast_to(summed, {8, 4}));
  const Value kept = barrier({updated, scanned[1]})[1];
  g.outputs = {updated, kept, reduce_max(x, {0})};
  return graph;
}

ProgramSpec whole_spec(const sharding::Mesh& mesh) {
  const sharding::PartitionSpec rows{{{"fsdp"}, {}}}, none{{{}, {}}};
  return {.name = "jit_whole",
          .mesh = mesh,
          .arguments = {rows, none, rows, sharding::PartitionSpec{{{}}}},
          .results = {rows, none, sharding::PartitionSpec{{{}}}},
          .donated = {-1, -1, 0, -1}};
}

TEST(IrDevice, GoldenOfAWholeProgram) {
  const sharding::Mesh mesh{{{"data", 1}, {"fsdp", 2}, {"tensor", 2}}};
  const auto graph = whole_program(mesh);
  // Line numbers of this file would make the golden change with every edit.
  ProgramSpec spec = whole_spec(mesh);
  spec.locations = false;
  testing::expect_golden("stablehlo/whole_program.mlir", to_stablehlo(*optimise(*graph), spec));
}

std::vector<Tensor> whole_inputs() {
  Tensor x(DType::kF32, {8, 4}), w(DType::kF32, {4, 4}), table(DType::kF32, {16, 4});
  for (Tensor* t : {&x, &w, &table}) {
    for (size_t i = 0; i < static_cast<size_t>(t->size()); ++i) {
      t->mutable_data<float>()[i] = std::sin(static_cast<float>(i * 7 + 1));
    }
  }
  return {x, w, table, s32({8}, {1, 3, 3, 0, 15, 8, 8, 8})};
}

TEST(IrDevice, AWholeProgramOnOneAndOnFourDevices) {
  const sharding::Mesh four{{{"data", 1}, {"fsdp", 2}, {"tensor", 2}}};
  const sharding::Mesh one{{{"data", 1}, {"fsdp", 1}, {"tensor", 1}}};
  const auto a = run(*whole_program(one), whole_inputs(), whole_spec(one));
  const auto b = run(*whole_program(four), whole_inputs(), whole_spec(four));
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t k = 0; k < static_cast<size_t>(a[i].size()); ++k) {
      EXPECT_NEAR(a[i].data<float>()[k], b[i].data<float>()[k], 1e-5) << i << " " << k;
    }
  }
}

// The loop on the host says what scan, in both directions, and while compute.
TEST(IrDevice, LoopsByHand) {
  Graph g;
  const Value x = g.parameter({DType::kF32, {}}), xs = g.parameter({DType::kF32, {2, 3}});
  for (const bool reverse : {false, true}) {
    const Values out =
        scan({x}, {xs}, {.length = 3, .x_axes = {1}, .y_axes = {1}, .reverse = reverse},
             [](const Values& in) {
               return Values{in[0] * 2.0 + reduce_sum(in[1], {0}), in[1] + in[0]};
             });
    g.outputs.insert(g.outputs.end(), out.begin(), out.end());
  }
  const Value limit = full(g, DType::kF32, {}, 100);
  g.outputs.push_back(while_loop(
      {x}, [&](const Values& in) { return Values{compare(in[0], Direction::kLt, limit)}; },
      [&](const Values& in) { return Values{in[0] * 3.0 + x}; })[0]);
  const auto out = run(g, {f32({}, {1}), f32({2, 3}, {1, 2, 3, 10, 20, 30})});
  EXPECT_EQ(values_of<float>(out[0]), (Floats{((1 * 2 + 11) * 2 + 22) * 2 + 33}));
  EXPECT_EQ(values_of<float>(out[1]), (Floats{2, 15, 51, 11, 33, 78}));
  EXPECT_EQ(values_of<float>(out[2]), (Floats{((1 * 2 + 33) * 2 + 22) * 2 + 11}));
  EXPECT_EQ(values_of<float>(out[3]), (Floats{93, 37, 4, 102, 55, 31}));
  EXPECT_EQ(values_of<float>(out[4]), (Floats{121}));
}

TEST(IrDevice, ACustomCallReachesThePlugin) {
  Graph g;
  const Value x = g.parameter({DType::kF32, {2}});
  g.outputs = custom_call(
      g, {.target = "mt_no_such_kernel", .integers = {{"window", 3}}, .floats = {{"scale", 0.5}}},
      {x}, {x.type()});
  const std::string error = testing::error_of([&] { run(g, {f32({2}, {1, 2})}); });
  EXPECT_NE(error.find("mt_no_such_kernel"), std::string::npos) << error;
}

// The programs above together hold every kind; the rest is inlined by optimise() or named here.
TEST(IrDevice, EveryKindIsPrintedSomewhere) {
  const std::set<OpKind> by_value{OpKind::kIota,         OpKind::kNegate,
                                  OpKind::kExp,          OpKind::kLog,
                                  OpKind::kLog1p,        OpKind::kTanh,
                                  OpKind::kRsqrt,        OpKind::kSqrt,
                                  OpKind::kSine,         OpKind::kCosine,
                                  OpKind::kAbs,          OpKind::kSign,
                                  OpKind::kFloor,        OpKind::kNot,
                                  OpKind::kConvert,      OpKind::kBitcast,
                                  OpKind::kIsFinite,     OpKind::kAdd,
                                  OpKind::kSubtract,     OpKind::kMultiply,
                                  OpKind::kDivide,       OpKind::kMaximum,
                                  OpKind::kMinimum,      OpKind::kPower,
                                  OpKind::kRemainder,    OpKind::kAnd,
                                  OpKind::kOr,           OpKind::kXor,
                                  OpKind::kShiftLeft,    OpKind::kShiftRightLogical,
                                  OpKind::kCompare,      OpKind::kSelect,
                                  OpKind::kBroadcast,    OpKind::kReshape,
                                  OpKind::kTranspose,    OpKind::kSlice,
                                  OpKind::kPad,          OpKind::kConcatenate,
                                  OpKind::kDynamicSlice, OpKind::kDynamicUpdateSlice,
                                  OpKind::kReduceMin,    OpKind::kDotGeneral,
                                  OpKind::kConstant,     OpKind::kParameter,
                                  OpKind::kCustomCall};
  const std::set<OpKind> inlined{OpKind::kName, OpKind::kRemat, OpKind::kCustomVjp};
  const auto program = whole_program({{{"data", 1}, {"fsdp", 2}, {"tensor", 2}}});
  for (size_t i = 0; i < kOpCount; ++i) {
    const auto kind = static_cast<OpKind>(i);
    EXPECT_TRUE(by_value.contains(kind) || inlined.contains(kind) || count(*program, kind) > 0)
        << name(kind) << " is compiled by no test";
  }
}

// --- random numbers

TEST(Random, TheCipherMatchesItsPublishedVectors) {  // Random123's known-answer tests
  EXPECT_EQ(threefry2x32({0, 0}, 0, 0), (std::array<uint32_t, 2>{0x6b200159, 0x99ba4efe}));
  EXPECT_EQ(threefry2x32({~0U, ~0U}, ~0U, ~0U), (std::array<uint32_t, 2>{0x1cb996fc, 0xbb002be7}));
  EXPECT_EQ(threefry2x32({0x13198a2e, 0x03707344}, 0x243f6a88, 0x85a308d3),
            (std::array<uint32_t, 2>{0xc4923a9c, 0x483df7a0}));
}

TEST(Random, BitsAreThoseOfTheHost) {
  Graph g;
  const Value key = key_from_seed(g, 0x123456789abcdefULL);
  const Value folded = fold_in(key, 7);
  g.outputs = {key,
               folded,
               random_bits(key, {3, 5, 2}),
               random_bits(folded, {}),
               random_integers(folded, {11}, 10),
               fold_in(key, constant(g, s32({}, {-1})))};
  const auto out = run(g);
  const RandomKey host = random_key(0x123456789abcdefULL), host_folded = mt::fold_in(host, 7);
  const auto words = [](RandomKey k) { return std::vector<uint32_t>{k[0], k[1]}; };
  EXPECT_EQ(values_of<uint32_t>(out[0]), words(host));
  EXPECT_EQ(values_of<uint32_t>(out[1]), words(host_folded));
  EXPECT_EQ(values_of<uint32_t>(out[2]), mt::random_bits(host, 30));
  EXPECT_EQ(values_of<uint32_t>(out[3]), mt::random_bits(host_folded, 1));
  const auto bits = mt::random_bits(host_folded, 11);
  for (size_t i = 0; i < bits.size(); ++i) {
    EXPECT_EQ(out[4].data<int32_t>()[i], static_cast<int32_t>(bits[i] % 10));
  }
  EXPECT_EQ(values_of<uint32_t>(out[5]), words(mt::fold_in(host, 0xffffffffU)));
}

TEST(Random, ABatchOfKeysIsItsKeysOneByOne) {
  Graph g;
  const Value keys = g.parameter({DType::kU32, {3, 2}});
  const Value folded = fold_in(keys, 5);
  g.outputs = {random_normal(keys, {2, 3}), random_truncated_normal(folded, {4}), folded};
  const Tensor batch = Tensor::of<uint32_t>(DType::kU32, {3, 2}, {1, 2, 3, 4, 0, 9});
  const auto all = run(g, {batch});
  for (int64_t i = 0; i < 3; ++i) {
    Graph one;
    const Value key = one.parameter({DType::kU32, {2}});
    const Value own = fold_in(key, 5);
    one.outputs = {random_normal(key, {2, 3}), random_truncated_normal(own, {4}), own};
    const auto single = run(one, {batch.slice({i, 0}, {1, 2}).reshape({2})});
    for (size_t k = 0; k < single.size(); ++k) {
      const auto part = all[k].bytes().subspan(static_cast<size_t>(i) * single[k].bytes().size());
      EXPECT_TRUE(std::equal(single[k].bytes().begin(), single[k].bytes().end(), part.begin()))
          << i << " " << k;
    }
  }
}

struct Moments {
  double mean = 0, variance = 0, fourth = 0, low = 1e9, high = -1e9;
};

Moments moments(const Tensor& t) {
  Moments m;
  const auto n = static_cast<double>(t.size());
  for (const float v : t.data<float>()) {
    const double x = v;
    m.mean += x / n;
    m.variance += x * x / n;
    m.fourth += x * x * x * x / n;
    m.low = std::min(m.low, x);
    m.high = std::max(m.high, x);
  }
  m.variance -= m.mean * m.mean;
  return m;
}

// Bounds are five standard errors of a million samples.
TEST(Random, Distributions) {
  Graph g;
  const Shape n{1000, 1000};
  const Value key = key_from_seed(g, 42);
  g.outputs = {random_normal(fold_in(key, 0), n), random_truncated_normal(fold_in(key, 1), n),
               random_uniform(fold_in(key, 2), n, -1, 3),
               cast(random_bernoulli(fold_in(key, 3), n, 0.1), DType::kF32)};
  const auto out = run(g);
  const Moments normal = moments(out[0]);
  EXPECT_NEAR(normal.mean, 0, 5e-3);
  EXPECT_NEAR(normal.variance, 1, 7.1e-3);
  EXPECT_NEAR(normal.fourth, 3, 0.05);
  EXPECT_GT(normal.high, 4);
  EXPECT_LT(normal.high, 6);
  const Moments cut = moments(out[1]);
  EXPECT_NEAR(cut.mean, 0, 4.4e-3);
  EXPECT_NEAR(cut.variance, 0.77374137, 4e-3);  // 1 - 4 phi(2) / (2 Phi(2) - 1)
  EXPECT_GE(cut.low, -2);
  EXPECT_LE(cut.high, 2);
  EXPECT_GT(cut.high, 1.999);
  const Moments uniform = moments(out[2]);
  EXPECT_NEAR(uniform.mean, 1, 5.8e-3);
  EXPECT_NEAR(uniform.variance, 16.0 / 12, 6e-3);
  EXPECT_GE(uniform.low, -1);
  EXPECT_LT(uniform.high, 3);
  EXPECT_NEAR(moments(out[3]).mean, 0.1, 1.5e-3);
}

TEST(Random, InverseOfTheErrorFunction) {
  for (const double x : {-0.999, -0.5, -1e-3, 0.0, 0.25, 0.9, 0.9999}) {
    const float y = floats({static_cast<float>(x)}, erf_inv)[0];
    EXPECT_NEAR(std::erf(static_cast<double>(y)), static_cast<float>(x), 4e-7) << x;
  }
}

TEST(Random, TheSameOnAnyMeshBitForBit) {
  const auto draw = [](const sharding::Mesh& mesh, const sharding::PartitionSpec& spec) {
    Graph g;
    const Value key = g.parameter({DType::kU32, {2}});
    for (const Value v : {random_normal(key, {8, 12}), random_truncated_normal(key, {8, 12}),
                          random_uniform(key, {8, 12}, 0, 1)}) {
      g.outputs.push_back(v);
    }
    const ProgramSpec program{.mesh = mesh, .arguments = {}, .results = {spec, spec, spec}};
    std::vector<uint32_t> bits;
    for (const Tensor& t : run(g, {Tensor::of<uint32_t>(DType::kU32, {2}, {3, 4})}, program)) {
      for (const float v : t.data<float>()) bits.push_back(std::bit_cast<uint32_t>(v));
    }
    return bits;
  };
  const auto one = draw({}, {{{}, {}}});
  const sharding::Mesh four{{{"fsdp", 4}}}, square{{{"fsdp", 2}, {"tensor", 2}}};
  EXPECT_EQ(draw(four, {{{"fsdp"}, {}}}), one);
  EXPECT_EQ(draw(four, {{{}, {"fsdp"}}}), one);
  EXPECT_EQ(draw(four, {{{}, {}}}), one);
  EXPECT_EQ(draw(square, {{{"tensor"}, {"fsdp"}}}), one);
  EXPECT_EQ(draw(square, {{{"fsdp", "tensor"}, {}}}), one);
}

}  // namespace
}  // namespace mt::ir
