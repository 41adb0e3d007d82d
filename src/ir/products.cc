#include "ir/products.h"

#include <algorithm>

#include "ir/ops.h"
#include "ir/passes.h"

namespace mt::ir {
namespace {

using Dims = std::vector<int64_t>;

bool are_last(const Dims& dims, int64_t rank) {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] != rank - static_cast<int64_t>(dims.size() - i)) return false;
  }
  return true;
}

bool are_first_after(const Dims& dims, size_t batch) {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] != static_cast<int64_t>(batch + i)) return false;
  }
  return true;
}

bool contains(const Dims& dims, int64_t d) {
  return std::find(dims.begin(), dims.end(), d) != dims.end();
}

Value wide(Value lhs, Value rhs, const DotDims& dims, DType result) {
  return cast(dot_general(cast(lhs, DType::kF32), cast(rhs, DType::kF32), dims, DType::kF32),
              result);
}

// The lhs with its contracted dimensions last, in their order. The last of them is cut in two on
// the way: a plain transpose XLA would fold into the product, which then is no product of rows
// again.
Value with_rows(Value lhs, const DotDims& dims) {
  const int64_t split = dims.lhs_contract.back();
  Shape cut;
  Dims order, contracted;
  Shape whole;
  std::vector<Dims> parts(static_cast<size_t>(lhs.rank()));  // dimensions of `cut`
  for (int64_t d = 0; d < lhs.rank(); ++d) {
    Dims& part = parts[static_cast<size_t>(d)];
    part.push_back(static_cast<int64_t>(cut.size()));
    if (d == split) {
      part.push_back(static_cast<int64_t>(cut.size()) + 1);
      cut.push_back(2);
      cut.push_back(lhs.dim(d) / 2);
    } else {
      cut.push_back(lhs.dim(d));
    }
  }
  Dims dimensions = dims.lhs_batch;
  for (int64_t d = 0; d < lhs.rank(); ++d) {
    if (!contains(dims.lhs_batch, d) && !contains(dims.lhs_contract, d)) dimensions.push_back(d);
  }
  dimensions.insert(dimensions.end(), dims.lhs_contract.begin(), dims.lhs_contract.end());
  for (const int64_t d : dimensions) {
    const Dims& part = parts[static_cast<size_t>(d)];
    order.insert(order.end(), part.begin(), part.end());
    whole.push_back(lhs.dim(d));
  }
  return reshape(transpose(reshape(lhs, cut), order), whole);
}

Value as_rows(Value lhs, Value rhs, DotDims dims, DType result) {
  const bool batched = are_first_after(dims.lhs_batch, 0) && are_first_after(dims.rhs_batch, 0);
  const bool columns = are_last(dims.rhs_contract, rhs.rank()) ||
                       are_first_after(dims.rhs_contract, dims.rhs_batch.size());
  if (!batched || !columns || dims.lhs_contract.empty()) return wide(lhs, rhs, dims, result);
  if (!are_last(dims.lhs_contract, lhs.rank())) {
    if (lhs.dim(dims.lhs_contract.back()) % 2 != 0) return wide(lhs, rhs, dims, result);
    lhs = with_rows(lhs, dims);
    for (size_t i = 0; i < dims.lhs_contract.size(); ++i) {
      dims.lhs_contract[i] = lhs.rank() - static_cast<int64_t>(dims.lhs_contract.size() - i);
    }
  }
  return dot_general(lhs, rhs, dims, result);
}

Value suited(const DotDims& dims, Value lhs, Value rhs, DType result, Products products) {
  const bool narrow = is_float(lhs.dtype()) && byte_size(lhs.dtype()) == 2;
  if (!narrow) return dot_general(lhs, rhs, dims, result);
  if (products == Products::kBfloat16Rows && lhs.dtype() == DType::kBF16) {
    return as_rows(lhs, rhs, dims, result);
  }
  return wide(lhs, rhs, dims, result);
}

std::shared_ptr<Graph> rewritten(const Graph& graph, Products products) {
  auto out = std::make_shared<Graph>();
  std::vector<Value> map(graph.value_count());
  for (const Node& node : graph.nodes()) {
    std::vector<Value> operands, results;
    for (const int32_t id : node.operands) operands.push_back(map[static_cast<size_t>(id)]);
    const size_t first = out->nodes().size();
    if (node.kind == OpKind::kParameter) {
      results = {
          out->parameter(graph.type_of(node.results[0]), std::get<Label>(node.attributes).text)};
    } else if (node.kind == OpKind::kDotGeneral) {
      results = {suited(std::get<DotDims>(node.attributes), operands[0], operands[1],
                        graph.type_of(node.results[0]).dtype, products)};
    } else {
      std::vector<Type> types;
      for (const int32_t id : node.results) types.push_back(graph.type_of(id));
      std::vector<std::shared_ptr<Graph>> regions;
      for (const auto& region : node.regions) regions.push_back(rewritten(*region, products));
      results = out->add(node.kind, operands, node.attributes, std::move(types), std::move(regions),
                         node.site);
    }
    for (size_t i = first; i < out->nodes().size(); ++i) {
      out->nodes()[i].path = node.path;
      out->nodes()[i].site = node.site;
    }
    for (size_t i = 0; i < results.size(); ++i) {
      map[static_cast<size_t>(node.results[i])] = results[i];
    }
  }
  for (const Value& v : graph.outputs) out->outputs.push_back(map[static_cast<size_t>(v.id)]);
  return out;
}

}  // namespace

std::shared_ptr<Graph> suit_products(const Graph& graph, Products products) {
  return products == Products::kAsTraced ? optimise(graph) : optimise(*rewritten(graph, products));
}

}  // namespace mt::ir
