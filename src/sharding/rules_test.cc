#include "sharding/rules.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "sharding/axes.h"
#include "sharding/build_mesh.h"

namespace mt::sharding {
namespace {

// The part of configs/base.yml that these tests need; the whole file is tested in config.
const std::vector<AxisRule> kRules = {
    {"activation_batch", {"data", "fsdp", "fsdp_transpose", "expert"}},
    {"activation_length", {"sequence", "context"}},
    {"activation_length", {"context"}},
    {"activation_vocab", {"tensor", "tensor_transpose", "sequence", "tensor_sequence"}},
    {"activation_vocab", {"tensor", "tensor_transpose"}},
    {"mlp", {"fsdp_transpose", "tensor"}},
    {"vocab", {"tensor", "tensor_transpose"}},
    {"embed", {"fsdp", "fsdp_transpose", "sequence"}},
    {"embed", {"fsdp", "sequence"}},
    {"kv", {}},
    {"layers", {"stage"}},
};

Mesh mesh_of(std::vector<MeshAxis> axes) { return Mesh{.axes = std::move(axes)}; }

TEST(Resolve, FsdpSplitsEmbedAndBatch) {
  const Mesh mesh = mesh_of({{"data", 1}, {"fsdp", 4}, {"tensor", 1}});
  EXPECT_EQ(to_string(resolve(kRules, mesh, {"vocab", "embed"})), "P(-, fsdp)");
  EXPECT_EQ(to_string(resolve(kRules, mesh, {"embed", "layers", "mlp"})), "P(fsdp, -, -)");
  EXPECT_EQ(to_string(resolve(kRules, mesh, {"activation_batch", "activation_length", ""})),
            "P(fsdp, -, -)");
}

TEST(Resolve, AFallbackIsTakenWhenAnotherDimensionHasTheAxis) {
  const Mesh mesh = mesh_of({{"fsdp", 2}, {"fsdp_transpose", 2}, {"sequence", 2}, {"tensor", 2}});
  // mlp comes first in the rules and takes fsdp_transpose, wherever it stands in the array.
  EXPECT_EQ(to_string(resolve(kRules, mesh, {"embed", "mlp"})),
            "P((fsdp, sequence), (fsdp_transpose, tensor))");
  EXPECT_EQ(to_string(resolve(kRules, mesh, {"embed", "kv"})),
            "P((fsdp, fsdp_transpose, sequence), -)");
  EXPECT_EQ(to_string(resolve(kRules, mesh, {"activation_length", "activation_vocab"})),
            "P(sequence, tensor)");
}

TEST(Resolve, TheChoiceOfARuleDoesNotDependOnSizes) {
  // fsdp_transpose has size 1, yet mlp's rule names it: embed gets its fallback all the same.
  const Mesh mesh = mesh_of({{"fsdp", 2}, {"fsdp_transpose", 1}, {"sequence", 2}});
  EXPECT_EQ(to_string(resolve(kRules, mesh, {"embed", "mlp"})), "P((fsdp, sequence), -)");
}

TEST(Resolve, UnknownAndEmptyNamesStayWhole) {
  const Mesh mesh = mesh_of({{"fsdp", 2}});
  EXPECT_EQ(to_string(resolve(kRules, mesh, {"nobody", "", ""})), "P(-, -, -)");
  EXPECT_TRUE(resolve(kRules, mesh, {}).dims.empty());
  EXPECT_TRUE(resolve({}, mesh, {"embed"}).is_replicated());
}

TEST(Resolve, ANameTwiceIsRefused) {
  try {
    resolve(kRules, mesh_of({{"fsdp", 2}}), {"embed", "kv", "embed"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "logical axis embed names two dimensions of one array");
  }
}

TEST(ReplaceRules, ANameIsReplacedWithAllItsFallbacksInPlace) {
  const std::vector<AxisRule> base = {
      {"a", {"data"}}, {"b", {"fsdp"}}, {"b", {"tensor"}}, {"c", {}}};
  const std::vector<AxisRule> out = replace_rules(base, {{"b", {"expert"}}, {"d", {"stage"}}});
  const std::vector<AxisRule> expected = {
      {"a", {"data"}}, {"b", {"expert"}}, {"c", {}}, {"d", {"stage"}}};
  EXPECT_EQ(out, expected);
  EXPECT_EQ(replace_rules(base, {}), base);
}

Parallelism two_axes(int64_t fsdp, int64_t tensor, int64_t dcn_data = 1, int64_t slices = -1) {
  return {.axes = {{"data", 1, dcn_data}, {"fsdp", fsdp, 1}, {"tensor", tensor, 1}},
          .num_slices = slices};
}

std::string shape_of(const Mesh& mesh) {
  std::string text;
  for (const MeshAxis& axis : mesh.axes) text += axis.name + "=" + std::to_string(axis.size) + " ";
  return text;
}

TEST(BuildMesh, FillsTheOpenAxis) {
  EXPECT_EQ(shape_of(build_mesh(two_axes(-1, 2), 8)), "data=1 fsdp=4 tensor=2 ");
  EXPECT_EQ(shape_of(build_mesh(two_axes(4, 1), 4)), "data=1 fsdp=4 tensor=1 ");
  EXPECT_EQ(shape_of(build_mesh(two_axes(-1, 1), 1)), "data=1 fsdp=1 tensor=1 ");
  EXPECT_EQ(shape_of(build_mesh(two_axes(-1, 1, -1), 4)), "data=1 fsdp=4 tensor=1 ");
}

TEST(BuildMesh, SlicesMultiply) {
  EXPECT_EQ(shape_of(build_mesh(two_axes(-1, 2, 2), 8)), "data=2 fsdp=2 tensor=2 ");
  EXPECT_EQ(shape_of(build_mesh(two_axes(-1, 2, -1, 4), 8)), "data=4 fsdp=1 tensor=2 ");
}

TEST(RequiredDevices, AnOpenAxisCountsOne) {
  EXPECT_EQ(required_devices(two_axes(-1, 1, -1)), 1);
  EXPECT_EQ(required_devices(two_axes(4, 1)), 4);
  EXPECT_EQ(required_devices(two_axes(-1, 2)), 2);
  EXPECT_EQ(required_devices(two_axes(2, 2, 3)), 12);
}

std::string refusal(const Parallelism& parallelism, int64_t devices) {
  try {
    build_mesh(parallelism, devices);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kConfig);
    return e.what();
  }
  return "accepted";
}

TEST(BuildMesh, RefusalsNameAxesAndNumbers) {
  EXPECT_EQ(refusal(two_axes(4, 2), 4),
            "ici_fsdp_parallelism=4 * ici_tensor_parallelism=2 make 8 devices but there are 4");
  EXPECT_EQ(refusal(two_axes(1, 1), 4), "all sizes given are 1 make 1 devices but there are 4");
  EXPECT_EQ(refusal(two_axes(-1, 3), 4),
            "ici_fsdp_parallelism=-1: the 4 devices can't be divided by 3 "
            "(ici_tensor_parallelism=3)");
  EXPECT_EQ(refusal(two_axes(-1, -1), 4),
            "ici_fsdp_parallelism and ici_tensor_parallelism are both -1: only one of them can "
            "take what is left");
  EXPECT_EQ(refusal(two_axes(0, 1), 4), "ici_fsdp_parallelism=0: must be -1 or at least 1");
  EXPECT_EQ(refusal(two_axes(-2, 1), 4), "ici_fsdp_parallelism=-2: must be -1 or at least 1");
  EXPECT_EQ(refusal(two_axes(4, 1, 1, 0), 4), "num_slices=0: must be -1 or at least 1");
  EXPECT_EQ(refusal(two_axes(4, 1, 1, 3), 4), "4 devices can't be divided into 3 slices");
  EXPECT_EQ(refusal(two_axes(2, 1, 3, 2), 4),
            "dcn_data_parallelism=3 make 3 slices but there are 2");
  EXPECT_EQ(refusal(two_axes(int64_t{1} << 40, int64_t{1} << 40), 4),
            "ici_fsdp_parallelism=1099511627776: more than 16777216 devices in all");
}

TEST(BuildMesh, AKeyThatDiffersFromItsAxisIsNamed) {
  const Parallelism parallelism{.axes = {{"stage", 0, 1, "pipeline"}}, .num_slices = -1};
  EXPECT_EQ(refusal(parallelism, 1), "ici_pipeline_parallelism=0: must be -1 or at least 1");
}

}  // namespace
}  // namespace mt::sharding
