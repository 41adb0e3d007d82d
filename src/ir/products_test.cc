#include "ir/products.h"

#include <gtest/gtest.h>

#include "ir/ops.h"
#include "ir/passes.h"

namespace mt::ir {
namespace {

// "bfloat16", "f32" or, with a transposed lhs, "bfloat16 transposed": what becomes of one product.
std::string outcome(std::string_view formula, const Shape& lhs, const Shape& rhs, Products products,
                    DType dtype = DType::kBF16) {
  Graph g;
  g.outputs = {einsum(formula, g.parameter({dtype, lhs}, "a"), g.parameter({dtype, rhs}, "b"))};
  const auto out = suit_products(*optimise(g), products);
  EXPECT_EQ(out->outputs[0].type(), g.outputs[0].type());
  std::string text;
  for (const Node& node : out->nodes()) {
    if (node.kind != OpKind::kDotGeneral) continue;
    text += name(out->type_of(node.operands[0]).dtype);
  }
  const bool cut = count(*out, OpKind::kReshape) > 0;
  return cut ? text + " transposed" : text;
}

TEST(Products, AreSuitedToThePlatform) {
  constexpr auto kRows = Products::kBfloat16Rows;
  // A layer; the gradient of its input; the gradient of its weight.
  const auto layer = [&](Products p) { return outcome("bld,dnh->blnh", {2, 3, 4}, {4, 5, 6}, p); };
  const auto input = [&](Products p) {
    return outcome("blnh,dnh->bld", {2, 3, 5, 6}, {4, 5, 6}, p);
  };
  const auto weight = [&](int64_t length, Products p) {
    return outcome("bld,blf->df", {2, length, 4}, {2, length, 5}, p);
  };
  EXPECT_EQ(layer(Products::kAsTraced), "bfloat16");
  EXPECT_EQ(weight(4, Products::kAsTraced), "bfloat16");
  EXPECT_EQ(layer(Products::kWide), "float32");
  EXPECT_EQ(layer(kRows), "bfloat16");
  EXPECT_EQ(input(kRows), "bfloat16");
  EXPECT_EQ(weight(4, kRows), "bfloat16 transposed");
  EXPECT_EQ(weight(3, kRows), "float32") << "an odd length can't be cut in two";
  // Attention: scores, context, the gradient of the keys.
  EXPECT_EQ(outcome("bkld,bksd->bkls", {1, 2, 3, 4}, {1, 2, 5, 4}, kRows), "bfloat16");
  EXPECT_EQ(outcome("bkls,bksd->bkld", {1, 2, 3, 5}, {1, 2, 5, 4}, kRows), "bfloat16");
  EXPECT_EQ(outcome("bkls,bkld->bksd", {1, 2, 6, 5}, {1, 2, 6, 4}, kRows), "bfloat16 transposed");
  EXPECT_EQ(outcome("lbd,bsd->bls", {3, 2, 4}, {2, 5, 4}, kRows), "float32")
      << "batch not in front";
  EXPECT_EQ(outcome("ij,jk->ik", {2, 3}, {3, 4}, kRows, DType::kF16), "float32");
  EXPECT_EQ(outcome("ij,jk->ik", {2, 3}, {3, 4}, kRows, DType::kF32), "float32");
}

TEST(Products, InsideLoopsToo) {
  Graph g;
  const Value x = g.parameter({DType::kBF16, {4, 4}}, "x");
  g.outputs = {scan({x}, {}, {.length = 3}, [](const std::vector<Value>& s) -> std::vector<Value> {
    return {einsum("ij,jk->ik", s[0], s[0])};
  })[0]};
  const auto out = suit_products(*optimise(g), Products::kWide);
  EXPECT_NE(dump(*out).find("dot_general"), std::string::npos);
  EXPECT_EQ(count(*out, OpKind::kConvert), 2) << dump(*out);  // one in, merged, and one out
}

}  // namespace
}  // namespace mt::ir
