// Shape rules: good calls with the type they give, bad calls with their whole message.
#include "ir/ops.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "base/error.h"

namespace mt::ir {
namespace {

using Values = std::vector<Value>;
const Site kHere{"/home/me/src/layers/a.cc", 12};

struct Case {
  std::string what;
  std::string expected;  // the result's type, or the message
  std::function<Value(Graph&)> make;
};

Value f32(Graph& g, Shape shape) { return g.parameter({DType::kF32, std::move(shape)}); }
Value s32(Graph& g, Shape shape = {}) { return g.parameter({DType::kS32, std::move(shape)}); }

std::string outcome(const Case& c) {
  Graph graph;
  const Scope scope(graph, "decoder"), inner(graph, "mlp");
  try {
    const Value v = c.make(graph);
    return v ? to_string(v.type()) : "";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kShape) << c.what;
    return e.what();
  }
}

void expect(const std::vector<Case>& cases) {
  for (const Case& c : cases) EXPECT_EQ(outcome(c), c.expected) << c.what;
}

std::string at(const std::string& message) {
  return message + " (in decoder/mlp, src/layers/a.cc:12)";
}

// As at(), of a call in this file.
std::string on(int line, const std::string& message) {
  return message + " (in decoder/mlp, src/ir/ops_test.cc:" + std::to_string(line) + ")";
}

TEST(Ops, GoodElementwiseCalls) {
  expect({
      {"broadcast", "f32[2, 4, 3]",
       [](Graph& g) {
         return add(f32(g, {4, 1}), f32(g, {2, 1, 3}));
       }},
      {"empty", "f32[0, 3]",
       [](Graph& g) {
         return f32(g, {0, 3}) * f32(g, {1, 3});
       }},
      {"number", "f32[2]", [](Graph& g) { return 1.0 / (f32(g, {2}) + 1.0); }},
      {"compare", "i1[2]",
       [](Graph& g) { return compare(f32(g, {2}), Direction::kLt, f32(g, {})); }},
      {"select", "f32[2, 3]",
       [](Graph& g) {
         return select(g.parameter({DType::kPred, {2, 1}}), f32(g, {3}), f32(g, {}));
       }},
      {"cast", "bf16[2]", [](Graph& g) { return cast(f32(g, {2}), DType::kBF16); }},
      {"bitcast", "ui32[2]", [](Graph& g) { return bitcast(f32(g, {2}), DType::kU32); }},
      {"is_finite", "i1[2]", [](Graph& g) { return is_finite(f32(g, {2})); }},
  });
}

TEST(Ops, BadElementwiseCalls) {
  expect({
      {"dtypes", at("[add] dtypes differ: f32[2] and i32[2]"),
       [](Graph& g) { return add(f32(g, {2}), s32(g, {2}), kHere); }},
      {"shapes", at("[multiply] shapes [2, 3] and [2] do not broadcast: 3 against 2"),
       [](Graph& g) {
         return multiply(f32(g, {2, 3}), f32(g, {2}), kHere);
       }},
      {"operators know the module and the line",
       on(__LINE__ + 1, "[subtract] dtypes differ: f32[2] and i32[]"),
       [](Graph& g) { return f32(g, {2}) - s32(g); }},
      {"an operator in the middle of a formula",
       on(__LINE__ + 1, "[multiply] dtypes differ: f32[2] and i32[]"),
       [](Graph& g) { return 1.0 + f32(g, {2}) * s32(g) / 2.0; }},
      {"a float op on integers", on(__LINE__ + 1, "[tanh] needs a float, found i32[2]"),
       [](Graph& g) { return tanh(s32(g, {2})); }},
      {"select on numbers",
       at("[select] needs a bool and two of one dtype, found f32[], f32[], f32[]"),
       [](Graph& g) { return select(f32(g, {}), f32(g, {}), f32(g, {}), kHere); }},
      {"bitcast of another width",
       on(__LINE__ + 1, "[bitcast_convert] widths differ: f32[2] to bf16"),
       [](Graph& g) { return bitcast(f32(g, {2}), DType::kBF16); }},
      {"iota", on(__LINE__ + 1, "[iota] axis 1 is outside shape [3]"),
       [](Graph& g) { return iota(g, DType::kS32, {3}, 1); }},
      {"no module", "[iota] axis 1 is outside shape [3] (in src/layers/a.cc:12)",
       [](Graph& g) {
         g.path.clear();
         return iota(g, DType::kS32, {3}, 1, kHere);
       }},
  });
}

// What a gradient's error and the locations in a program's text go by.
TEST(Ops, EveryNodeKnowsItsLine) {
  Graph g;
  const Value a = f32(g, {2}), b = f32(g, {2});
  const auto first = static_cast<int32_t>(g.nodes().size());
  const int line = __LINE__ + 1;
  square(-(1.0 - sin(a) * b / 2.0) + zeros_like(mean(a, {0}) + sum_all(b)));
  ASSERT_GT(static_cast<int32_t>(g.nodes().size()), first + 10);
  for (size_t i = static_cast<size_t>(first); i < g.nodes().size(); ++i) {
    EXPECT_EQ(g.nodes()[i].site.line, line) << name(g.nodes()[i].kind);
    EXPECT_TRUE(std::string(g.nodes()[i].site.file).ends_with("src/ir/ops_test.cc"));
  }
}

TEST(Ops, GoodShapeCalls) {
  expect({
      {"reshape with -1", "f32[3, 2, 2]",
       [](Graph& g) {
         return reshape(f32(g, {2, 6}), {3, -1, 2});
       }},
      {"expand_dims", "f32[2, 3, 1]",
       [](Graph& g) {
         return expand_dims(f32(g, {2, 3}), -1);
       }},
      {"squeeze", "f32[2]",
       [](Graph& g) {
         return squeeze(f32(g, {2, 1}), -1);
       }},
      {"slice", "f32[3]", [](Graph& g) { return slice(f32(g, {8}), {1}, {7}, {2}); }},
      {"an empty slice", "f32[0]", [](Graph& g) { return slice(f32(g, {8}), {4}, {4}); }},
      {"pad", "f32[9]", [](Graph& g) { return pad(f32(g, {3}), 0, {-1}, {5}, {1}); }},
      {"concatenate", "f32[2, 5]",
       [](Graph& g) {
         return concatenate({f32(g, {2, 2}), f32(g, {2, 3})}, -1);
       }},
      {"take_rows", "f32[4, 5, 3]",
       [](Graph& g) {
         return take_rows(f32(g, {7, 3}), s32(g, {4, 5}));
       }},
      {"dynamic_slice", "f32[2, 1]",
       [](Graph& g) {
         return dynamic_slice(f32(g, {4, 4}), {s32(g), s32(g)}, {2, 1});
       }},
      {"transpose", "f32[4, 2, 3]",
       [](Graph& g) {
         return transpose(f32(g, {2, 3, 4}), {2, 0, 1});
       }},
  });
}

TEST(Ops, BadShapeCalls) {
  expect({
      {"reshape", at("[reshape] [2, 3] has 6 elements, [4, -1] asks for another number"),
       [](Graph& g) {
         return reshape(f32(g, {2, 3}), {4, -1}, kHere);
       }},
      {"two -1", at("[reshape] [2, 3] has 6 elements, [-1, -1] asks for another number"),
       [](Graph& g) {
         return reshape(f32(g, {2, 3}), {-1, -1}, kHere);
       }},
      {"broadcast", at("[broadcast_in_dim] [2] does not fit [3] by the axis map [0]"),
       [](Graph& g) { return broadcast_to(f32(g, {2}), {3}, kHere); }},
      {"broadcast to less",
       at("[broadcast_in_dim] [2, 3] does not fit [3] by the axis map [-1, 0]"),
       [](Graph& g) {
         return broadcast_to(f32(g, {2, 3}), {3}, kHere);
       }},
      {"expand_dims", at("[reshape] axis 4 is outside shape [2]"),
       [](Graph& g) { return expand_dims(f32(g, {2}), 4, kHere); }},
      {"squeeze", at("[reshape] axis 0 of [2] is not 1"),
       [](Graph& g) { return squeeze(f32(g, {2}), 0, kHere); }},
      {"transpose", at("[transpose] [0, 0] is no permutation of the axes of [2, 3]"),
       [](Graph& g) {
         return transpose(f32(g, {2, 3}), {0, 0}, kHere);
       }},
      {"slice", at("[slice] [[0], [9]) by [1] is outside [8]"),
       [](Graph& g) { return slice(f32(g, {8}), {0}, {9}, {}, kHere); }},
      {"axis", at("[slice] axis -3 is outside shape [2, 8]"),
       [](Graph& g) {
         return slice_axis(f32(g, {2, 8}), -3, 0, 1, kHere);
       }},
      {"pad", at("[pad] low [-2] high [-2] interior [0] does not fit [3]"),
       [](Graph& g) { return pad(f32(g, {3}), 0, {-2}, {-2}, {}, kHere); }},
      {"concatenate", at("[concatenate] f32[3, 2] does not join f32[2, 2] along axis 1"),
       [](Graph& g) {
         return concatenate({f32(g, {2, 2}), f32(g, {3, 2})}, 1, kHere);
       }},
      {"concatenate dtypes", at("[concatenate] i32[2] does not join f32[2] along axis 0"),
       [](Graph& g) {
         return concatenate({f32(g, {2}), s32(g, {2})}, 0, kHere);
       }},
      {"starts", at("[dynamic_slice] needs 2 integer scalar starts for f32[4, 4]"),
       [](Graph& g) {
         return dynamic_slice(f32(g, {4, 4}), {s32(g)}, {2, 1}, kHere);
       }},
      {"sizes", at("[dynamic_slice] sizes [5] do not fit [4]"),
       [](Graph& g) { return dynamic_slice(f32(g, {4}), {s32(g)}, {5}, kHere); }},
      {"update", at("[dynamic_update_slice] update f32[5] does not fit f32[4]"),
       [](Graph& g) { return dynamic_update_slice(f32(g, {4}), f32(g, {5}), {s32(g)}, kHere); }},
      {"take_rows", at("[take_rows] needs a table and integer indices, found f32[4] and f32[2]"),
       [](Graph& g) { return take_rows(f32(g, {4}), f32(g, {2}), kHere); }},
      {"scatter",
       at("[scatter_add_rows] updates f32[3, 2] do not fit table f32[7, 3] at indices i32[2]"),
       [](Graph& g) {
         return scatter_add_rows(f32(g, {7, 3}), s32(g, {2}), f32(g, {3, 2}), kHere);
       }},
      {"constraint", at("[sharding_constraint] P(fsdp) names 1 dimensions, the value is f32[2, 3]"),
       [](Graph& g) {
         return sharding_constraint(f32(g, {2, 3}), {{{"fsdp"}}}, kHere);
       }},
  });
}

TEST(Ops, GoodContractions) {
  expect({
      {"dot_general", "f32[2, 3, 5]",
       [](Graph& g) {
         return dot_general(f32(g, {2, 3, 4}), f32(g, {2, 5, 4}), {{0}, {0}, {2}, {2}},
                            DType::kF32);
       }},
      {"einsum", "f32[2, 3, 4, 6]",
       [](Graph& g) {
         return einsum("bld,dnh->blnh", f32(g, {2, 3, 5}), f32(g, {5, 4, 6}));
       }},
      {"reduce", "f32[3]",
       [](Graph& g) {
         return reduce_sum(f32(g, {2, 3, 4}), {0, -1});
       }},
      {"reduce, kept", "f32[2, 1]",
       [](Graph& g) {
         return reduce_max(f32(g, {2, 3}), {1}, true);
       }},
      {"no axis", "f32[2, 3]",
       [](Graph& g) {
         return reduce_sum(f32(g, {2, 3}), {});
       }},
      {"mean", "f32[2]",
       [](Graph& g) {
         return mean(f32(g, {2, 3}), {-1});
       }},
      {"argmax", "i32[2]",
       [](Graph& g) {
         return argmax(f32(g, {2, 3}), -1);
       }},
  });
}

TEST(Ops, BadContractions) {
  const auto dot = [](Shape l, Shape r, DotDims dims) {
    return [=](Graph& g) { return dot_general(f32(g, l), f32(g, r), dims, DType::kF32, kHere); };
  };
  expect({
      {"sizes", at("[dot_general] contracting sizes differ: lhs 256 (axis 1), rhs 128 (axis 0)"),
       dot({2, 256}, {128, 3}, {{}, {}, {1}, {0}})},
      {"batch", at("[dot_general] batch sizes differ: lhs 2 (axis 0), rhs 3 (axis 0)"),
       dot({2, 4}, {3, 4}, {{0}, {0}, {1}, {1}})},
      {"outside", at("[dot_general] contracting axis outside: lhs 2 of [2, 4], rhs 0 of [4]"),
       dot({2, 4}, {4}, {{}, {}, {2}, {0}})},
      {"number", at("[dot_general] contracting axes differ in number: lhs [0, 1], rhs [0]"),
       dot({2, 4}, {2, 4}, {{}, {}, {0, 1}, {0}})},
      {"twice", at("[dot_general] an axis is named twice"),
       dot({2, 2}, {2, 2}, {{0}, {0}, {0}, {1}})},
      {"dtypes", at("[dot_general] dtypes differ: lhs f32[2], rhs i32[2]"),
       [](Graph& g) {
         return dot_general(f32(g, {2}), s32(g, {2}), {{}, {}, {0}, {0}}, DType::kF32, kHere);
       }},
      {"einsum rank", at("[dot_general] \"ij,jk->ik\" does not fit f32[2] and f32[2, 3]"),
       [](Graph& g) {
         return einsum("ij,jk->ik", f32(g, {2}), f32(g, {2, 3}), kHere);
       }},
      {"einsum letter", at("[dot_general] \"ij,jk->iz\" does not fit f32[2, 2] and f32[2, 3]"),
       [](Graph& g) {
         return einsum("ij,jk->iz", f32(g, {2, 2}), f32(g, {2, 3}), kHere);
       }},
      {"einsum sum of one", at("[dot_general] \"ij,j->j\" does not fit f32[2, 2] and f32[2]"),
       [](Graph& g) {
         return einsum("ij,j->j", f32(g, {2, 2}), f32(g, {2}), kHere);
       }},
      {"einsum sizes", at("[dot_general] contracting sizes differ: lhs 3 (axis 1), rhs 2 (axis 0)"),
       [](Graph& g) {
         return einsum("ij,jk->ik", f32(g, {2, 3}), f32(g, {2, 3}), kHere);
       }},
      {"reduce", at("[reduce_sum] axes [2] are outside [2, 3]"),
       [](Graph& g) {
         return reduce_sum(f32(g, {2, 3}), {2}, false, kHere);
       }},
      {"reduce twice", at("[reduce_max] axis named twice in [1, 1]"),
       [](Graph& g) {
         return reduce_max(f32(g, {2, 3}), {1, -1}, false, kHere);
       }},
      {"mean", at("[reduce_sum] axes [5] are outside [2, 3]"),
       [](Graph& g) {
         return mean(f32(g, {2, 3}), {5}, false, kHere);
       }},
  });
}

TEST(Ops, BadScans) {
  const auto same = [](const Values& in) { return in; };
  expect({
      {"length", at("[scan] x 0 is f32[3, 2]: axis 0 must have the length 4"),
       [&](Graph& g) {
         return scan({}, {f32(g, {3, 2})}, {.length = 4}, same, kHere)[0];
       }},
      {"no length", at("[scan] length 0 is below 1"),
       [&](Graph& g) { return scan({f32(g, {})}, {}, {}, same, kHere)[0]; }},
      {"carry", at("[scan] carry 0 enters as f32[] and leaves as f32[2]"),
       [&](Graph& g) {
         const Value wide = f32(g, {2});
         return scan(
             {f32(g, {})}, {}, {.length = 2},
             [&](const Values& in) { return Values{in[0] + wide}; }, kHere)[0];
       }},
      {"too few", at("[scan] the body returns 0 values, 1 are carried"),
       [&](Graph& g) {
         return scan(
             {f32(g, {})}, {}, {.length = 2}, [](const Values&) { return Values{}; }, kHere)[0];
       }},
      {"y axis", at("[scan] y 0 is f32[]: it cannot be stacked at axis 1"),
       [&](Graph& g) {
         return scan(
             {f32(g, {})}, {}, {.length = 2, .y_axes = {1}},
             [](const Values& in) {
               return Values{in[0], in[0]};
             },
             kHere)[0];
       }},
      {"too many x axes", at("[scan] 1 axes are given for 0 xs"),
       [&](Graph& g) {
         return scan({f32(g, {})}, {}, {.length = 2, .x_axes = {0}}, same, kHere)[0];
       }},
      {"too many y axes", at("[scan] 1 axes are given for 0 ys"),
       [&](Graph& g) {
         return scan({f32(g, {})}, {}, {.length = 2, .y_axes = {0}}, same, kHere)[0];
       }},
  });
}

TEST(Ops, BadRegions) {
  const auto same = [](const Values& in) { return in; };
  const sharding::Mesh mesh{{{"fsdp", 4}}};
  expect({
      {"while condition", at("[while] the condition must return one bool scalar"),
       [&](Graph& g) { return while_loop({f32(g, {})}, same, same, kHere)[0]; }},
      {"while state", at("[while] carry 0 enters as f32[] and leaves as i1[]"),
       [&](Graph& g) {
         const auto more = [](const Values& in) {
           return Values{compare(in[0], Direction::kLt, in[0])};
         };
         return while_loop({f32(g, {})}, more, more, kHere)[0];
       }},
      {"manual: capture",
       at("[manual_computation] the body uses an outer value; pass it as an argument with its "
          "sharding"),
       [&](Graph& g) {
         const Value outer = f32(g, {});
         return manual_computation(
             {f32(g, {8})}, {{{{{"fsdp"}}}}, {{{{"fsdp"}}}}, {"fsdp"}}, mesh, {{DType::kF32, {8}}},
             [&](const Values& in) { return Values{in[0] * outer}; }, kHere)[0];
       }},
      {"manual: result", at("[manual_computation] result 0 should be the shard [2]"),
       [&](Graph& g) {
         return manual_computation({f32(g, {8})}, {{{{{}}}}, {{{{"fsdp"}}}}, {"fsdp"}}, mesh,
                                   {{DType::kF32, {8}}}, same, kHere)[0];
       }},
      {"another trace", "operands come from different traces (in decoder/mlp)",
       [&](Graph& g) {
         static Graph other;
         return f32(g, {}) + f32(other, {});
       }},
      {"a value that leaks out of a body", "operands come from different traces (in decoder/mlp)",
       [&](Graph& g) {
         static std::vector<Value> leaked;
         static std::vector<std::shared_ptr<Graph>> alive;
         const Value x = f32(g, {});
         scan({x}, {}, {.length = 2}, [&](const Values& in) {
           leaked = in;
           return in;
         });
         alive = g.nodes().back().regions;
         Graph sibling(&g);
         return sibling.parameter({DType::kF32, {}}) + leaked[0];
       }},
  });
}

TEST(Ops, CallsThatChangeNothingAddNoNode) {
  Graph g;
  const Value x = f32(g, {2, 3});
  const size_t before = g.nodes().size();
  EXPECT_EQ(reshape(x, {2, 3}), x);
  EXPECT_EQ(transpose(x, {0, 1}), x);
  EXPECT_EQ(slice(x, {0, 0}, {2, 3}), x);
  EXPECT_EQ(broadcast_to(x, {2, 3}), x);
  EXPECT_EQ(cast(x, DType::kF32), x);
  EXPECT_EQ(reduce_sum(x, {}), x);
  EXPECT_EQ(concatenate({x}, 0), x);
  EXPECT_EQ(g.nodes().size(), before);
}

TEST(Ops, ARegionCapturesAnOuterValueOnce) {
  Graph g;
  const Value x = f32(g, {}), w = f32(g, {});
  scan({x}, {}, {.length = 2}, [&](const Values& in) { return Values{in[0] * w + w}; });
  const Node& node = g.nodes().back();
  EXPECT_EQ(node.operands, (std::vector<int32_t>{x.id, w.id}));
  EXPECT_EQ(node.regions[0]->parameters().size(), 2U);
}

}  // namespace
}  // namespace mt::ir
