// Products and reductions.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "ir/ops.h"

namespace mt::ir {
namespace {

bool contains(const std::vector<int64_t>& list, int64_t x) {
  return std::find(list.begin(), list.end(), x) != list.end();
}

bool repeats(std::vector<int64_t> a, const std::vector<int64_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end());
  return std::adjacent_find(a.begin(), a.end()) != a.end();
}

void check_pairs(Value lhs, Value rhs, const std::vector<int64_t>& l, const std::vector<int64_t>& r,
                 const char* what, Site site) {
  const Graph* graph = &graph_of({lhs, rhs});
  if (l.size() != r.size()) {
    shape_error(OpKind::kDotGeneral, graph, site,
                fmt::format("{} axes differ in number: lhs {}, rhs {}", what, l, r));
  }
  for (size_t i = 0; i < l.size(); ++i) {
    if (l[i] < 0 || l[i] >= lhs.rank() || r[i] < 0 || r[i] >= rhs.rank()) {
      shape_error(OpKind::kDotGeneral, graph, site,
                  fmt::format("{} axis outside: lhs {} of {}, rhs {} of {}", what, l[i],
                              mt::to_string(lhs.shape()), r[i], mt::to_string(rhs.shape())));
    }
    if (lhs.dim(l[i]) != rhs.dim(r[i])) {
      shape_error(OpKind::kDotGeneral, graph, site,
                  fmt::format("{} sizes differ: lhs {} (axis {}), rhs {} (axis {})", what,
                              lhs.dim(l[i]), l[i], rhs.dim(r[i]), r[i]));
    }
  }
}

Value reduce(OpKind kind, Value x, std::vector<int64_t> axes, bool keep, Site site) {
  for (int64_t& a : axes) {
    if (a < 0) a += x.rank();
    if (a < 0 || a >= x.rank()) {
      shape_error(kind, x.graph, site,
                  fmt::format("axes {} are outside {}", axes, mt::to_string(x.shape())));
    }
  }
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) {
    shape_error(kind, x.graph, site, fmt::format("axis named twice in {}", axes));
  }
  Shape reduced, kept = x.shape();
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (contains(axes, i)) {
      kept[static_cast<size_t>(i)] = 1;
    } else {
      reduced.push_back(x.dim(i));
    }
  }
  Value out =
      axes.empty() ? x : x.graph->add(kind, {x}, Axes{axes}, {{x.dtype(), reduced}}, {}, site)[0];
  return keep ? reshape(out, kept, site) : out;
}

}  // namespace

Value dot_general(Value lhs, Value rhs, DotDims dims, DType result, Site site) {
  Graph& graph = graph_of({lhs, rhs});
  if (lhs.dtype() != rhs.dtype()) {
    shape_error(
        OpKind::kDotGeneral, &graph, site,
        fmt::format("dtypes differ: lhs {}, rhs {}", to_string(lhs.type()), to_string(rhs.type())));
  }
  check_pairs(lhs, rhs, dims.lhs_batch, dims.rhs_batch, "batch", site);
  check_pairs(lhs, rhs, dims.lhs_contract, dims.rhs_contract, "contracting", site);
  if (repeats(dims.lhs_batch, dims.lhs_contract) || repeats(dims.rhs_batch, dims.rhs_contract)) {
    shape_error(OpKind::kDotGeneral, &graph, site, "an axis is named twice");
  }
  Shape shape;
  for (const int64_t a : dims.lhs_batch) shape.push_back(lhs.dim(a));
  for (int64_t i = 0; i < lhs.rank(); ++i) {
    if (!contains(dims.lhs_batch, i) && !contains(dims.lhs_contract, i))
      shape.push_back(lhs.dim(i));
  }
  for (int64_t i = 0; i < rhs.rank(); ++i) {
    if (!contains(dims.rhs_batch, i) && !contains(dims.rhs_contract, i))
      shape.push_back(rhs.dim(i));
  }
  return graph.add(OpKind::kDotGeneral, {lhs, rhs}, std::move(dims), {{result, shape}}, {},
                   site)[0];
}

Value einsum(std::string_view formula, Value lhs, Value rhs, Site site) {
  return einsum(formula, lhs, rhs, lhs.dtype(), site);
}

Value einsum(std::string_view formula, Value lhs, Value rhs, DType result, Site site) {
  const size_t comma = formula.find(','), arrow = formula.find("->");
  MT_CHECK(comma != std::string_view::npos && arrow != std::string_view::npos);
  const std::string_view l = formula.substr(0, comma);
  const std::string_view r = formula.substr(comma + 1, arrow - comma - 1);
  const std::string_view out = formula.substr(arrow + 2);
  // Every letter of the result is in an input, every letter of one input alone is in the result,
  // and none is twice in one of them.
  const auto fits = [&](std::string_view letters, const auto& known) {
    for (const char c : letters) {
      if (std::count(letters.begin(), letters.end(), c) > 1 || !known(c)) return false;
    }
    return true;
  };
  const auto in = [](std::string_view letters, char c) {
    return letters.find(c) != std::string_view::npos;
  };
  if (static_cast<int64_t>(l.size()) != lhs.rank() ||
      static_cast<int64_t>(r.size()) != rhs.rank() ||
      !fits(l, [&](char c) { return in(r, c) || in(out, c); }) ||
      !fits(r, [&](char c) { return in(l, c) || in(out, c); }) ||
      !fits(out, [&](char c) { return in(l, c) || in(r, c); })) {
    shape_error(OpKind::kDotGeneral, &graph_of({lhs, rhs}), site,
                fmt::format("\"{}\" does not fit {} and {}", formula, to_string(lhs.type()),
                            to_string(rhs.type())));
  }
  // The result's first letter that one input has alone decides which comes first, so that its rows
  // need no transpose (the gradient of a weight: XLA:CPU would transpose the activations for it).
  for (const char c : out) {
    if (in(l, c) && in(r, c)) continue;
    if (in(l, c)) break;
    const std::string turned = fmt::format("{},{}->{}", r, l, out);
    return einsum(turned, rhs, lhs, result, site);
  }
  DotDims dims;
  std::string order;  // the letters of dot_general's result
  for (size_t i = 0; i < l.size(); ++i) {
    const size_t j = r.find(l[i]);
    if (j == std::string_view::npos) continue;
    const bool batch = out.find(l[i]) != std::string_view::npos;
    (batch ? dims.lhs_batch : dims.lhs_contract).push_back(static_cast<int64_t>(i));
    (batch ? dims.rhs_batch : dims.rhs_contract).push_back(static_cast<int64_t>(j));
    if (batch) order += l[i];
  }
  for (const char c : l) order += r.find(c) == std::string_view::npos ? std::string(1, c) : "";
  for (const char c : r) order += l.find(c) == std::string_view::npos ? std::string(1, c) : "";
  const Value product = dot_general(lhs, rhs, std::move(dims), result, site);
  std::vector<int64_t> permutation;
  for (const char c : out) permutation.push_back(static_cast<int64_t>(order.find(c)));
  return transpose(product, permutation, site);
}

Value reduce_sum(Value x, std::vector<int64_t> axes, bool keep, Site site) {
  return reduce(OpKind::kReduceSum, x, std::move(axes), keep, site);
}
Value reduce_max(Value x, std::vector<int64_t> axes, bool keep, Site site) {
  return reduce(OpKind::kReduceMax, x, std::move(axes), keep, site);
}
Value reduce_min(Value x, std::vector<int64_t> axes, bool keep, Site site) {
  return reduce(OpKind::kReduceMin, x, std::move(axes), keep, site);
}

Value mean(Value x, std::vector<int64_t> axes, bool keep, Site site) {
  const Value sum = reduce_sum(x, axes, keep, site);  // checks the axes
  int64_t count = 1;
  for (const int64_t a : axes) count *= x.dim(a);
  return Located(sum, site) * (1.0 / static_cast<double>(count));
}

Value sum_all(Value x, Site site) {
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < x.rank(); ++i) axes.push_back(i);
  return reduce_sum(x, axes, false, site);
}

Value argmax(Value x, int64_t axis, Site site) {
  const int64_t at = axis < 0 ? axis + x.rank() : axis;
  const Value best = reduce_max(x, {at}, true, site);
  const Value index = iota(*best.graph, DType::kS32, x.shape(), at, site);
  const auto size = static_cast<double>(x.dim(at));
  const Value none = full(*best.graph, DType::kS32, x.shape(), size, site);
  return reduce_min(select(compare(x, Direction::kEq, best, site), index, none, site), {at}, false,
                    site);
}

}  // namespace mt::ir
