#include "nnx/to_linen.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "nnx/test_modules.h"

namespace mt::nnx {
namespace {

// The collections with a parameter of `graph` as each value.
Collections bound(Collections collections, ir::Graph& graph) {
  for (Collection& c : collections.all()) {
    for (auto& [path, leaf] : c.variables) leaf.value = graph.parameter(leaf.type, path);
  }
  return collections;
}

LinenModule layer(MetadataHook hook = variable_to_logically_partitioned) {
  return to_linen<TestLayer>(std::move(hook), int64_t{4});
}

std::vector<ir::Value> call(Module& module, ir::Value x) {
  return {dynamic_cast<TestLayer&>(module)(x)};
}

TEST(ToLinen, InitSortsVariablesIntoCollections) {
  const Collections c = layer().init();
  ASSERT_NE(c.find("params", "linear/kernel"), nullptr);
  EXPECT_EQ(to_string(c.find("params", "linear/kernel")->type), "f32[4, 4]");
  EXPECT_EQ(c.find("params", "linear/kernel")->names, (std::vector<std::string>{"embed", "mlp"}));
  EXPECT_NE(c.find("batch_stats", "calls"), nullptr);
  EXPECT_EQ(c.find("params", "calls"), nullptr);
  // Another hook, other metadata.
  EXPECT_TRUE(layer(plain_leaf).init().find("params", "linear/kernel")->names.empty());
}

TEST(ToLinen, ApplyComputesWhatTheModuleComputes) {
  ir::Graph linen, nnx;
  const ir::Type type{DType::kF32, {2, 4}};
  const Collections variables = bound(layer().init(), linen);
  const ir::Value x = linen.parameter(type, "x");
  const LinenResult result = layer().apply(variables, {"batch_stats", "intermediates"},
                                           [&](Module& m) { return call(m, x); });
  TestLayer module(4);
  for (const auto& [path, v] : nnx::variables(module)) v->value = nnx.parameter(v->type, path);
  const ir::Value y = call(module, nnx.parameter(type, "x"))[0];
  ASSERT_EQ(linen.nodes().size(), nnx.nodes().size());
  for (size_t i = 0; i < linen.nodes().size(); ++i) {
    EXPECT_EQ(linen.nodes()[i].kind, nnx.nodes()[i].kind) << i;
    EXPECT_EQ(linen.nodes()[i].operands, nnx.nodes()[i].operands) << i;
  }
  EXPECT_EQ(result.values[0].id, y.id);
  // The counter's new value, and what was sown; the collections given stay as they were.
  const LinenVariable* calls = result.updates.find("batch_stats", "calls");
  ASSERT_NE(calls, nullptr);
  EXPECT_NE(calls->value, variables.find("batch_stats", "calls")->value);
  EXPECT_NE(result.updates.find("intermediates", "norm"), nullptr);
  EXPECT_EQ(result.updates.find("params"), nullptr);
}

std::string refusal(const Collections& variables, ir::Value x,
                    const std::vector<std::string>& mutable_names) {
  try {
    layer().apply(variables, mutable_names, [&](Module& m) { return call(m, x); });
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(ToLinen, FaultsNameTheVariable) {
  ir::Graph g;
  const ir::Value x = g.parameter({DType::kF32, {2, 4}}, "x");
  const Collections good = bound(layer().init(), g);
  EXPECT_EQ(refusal(good, x, {"batch_stats"}), "accepted");
  EXPECT_EQ(refusal(good, x, {}),
            "apply: calls has changed, but collection 'batch_stats' isn't mutable");
  EXPECT_EQ(refusal(layer().init(), x, {}),
            "apply: linear/kernel of collection 'params' has no value");
  Collections missing = good;
  missing.at("params").variables.erase(missing.at("params").variables.begin());
  EXPECT_EQ(refusal(missing, x, {}), "apply: collection 'params' has no linear/kernel");
  Collections other = good;
  other.find("params", "linear/bias")->type.shape = {5};
  EXPECT_EQ(refusal(other, x, {}),
            "apply: linear/bias of collection 'params' is f32[5], the module wants f32[4]");
}

}  // namespace
}  // namespace mt::nnx
