// Operations that move elements without computing.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ir/ops.h"

namespace mt::ir {
namespace {

int64_t normalise(OpKind kind, Value x, int64_t axis, Site site) {
  const int64_t i = axis < 0 ? axis + x.rank() : axis;
  if (i < 0 || i >= x.rank()) {
    shape_error(kind, x.graph, site,
                fmt::format("axis {} is outside shape {}", axis, mt::to_string(x.shape())));
  }
  return i;
}

void check_scalar_starts(OpKind kind, Value x, const std::vector<Value>& starts, Site site) {
  bool good = static_cast<int64_t>(starts.size()) == x.rank();
  for (const Value& s : starts) good = good && s.rank() == 0 && is_integer(s.dtype());
  if (!good) {
    shape_error(
        kind, x.graph, site,
        fmt::format("needs {} integer scalar starts for {}", x.rank(), to_string(x.type())));
  }
}

}  // namespace

Value broadcast_in_dim(Value x, const Shape& shape, std::vector<int64_t> map, Site site) {
  bool good = static_cast<int64_t>(map.size()) == x.rank();
  for (size_t i = 0; good && i < map.size(); ++i) {
    const int64_t to = map[i];
    good = to >= 0 && to < static_cast<int64_t>(shape.size()) && (i == 0 || to > map[i - 1]) &&
           (x.shape()[i] == 1 || x.shape()[i] == shape[static_cast<size_t>(to)]);
  }
  if (!good) {
    shape_error(OpKind::kBroadcast, x.graph, site,
                fmt::format("{} does not fit {} by the axis map {}", mt::to_string(x.shape()),
                            mt::to_string(shape), map));
  }
  if (x.shape() == shape) return x;
  return x.graph->add(OpKind::kBroadcast, {x}, Axes{std::move(map)}, {{x.dtype(), shape}}, {},
                      site)[0];
}

Value broadcast_to(Value x, const Shape& shape, Site site) {
  std::vector<int64_t> map(x.shape().size());
  const auto shift = static_cast<int64_t>(shape.size()) - x.rank();
  std::iota(map.begin(), map.end(), shift);
  return broadcast_in_dim(x, shape, std::move(map), site);
}

Value reshape(Value x, const Shape& shape, Site site) {
  Shape full_shape = shape;
  int64_t known = 1, wild = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1) {
      wild = static_cast<int64_t>(i);
    } else {
      known *= shape[i];
    }
  }
  const int64_t count = element_count(x.shape());
  if (wild >= 0 && known > 0) full_shape[static_cast<size_t>(wild)] = count / known;
  if (std::find(full_shape.begin(), full_shape.end(), -1) != full_shape.end() ||
      element_count(full_shape) != count) {
    shape_error(OpKind::kReshape, x.graph, site,
                fmt::format("{} has {} elements, {} asks for another number",
                            mt::to_string(x.shape()), count, mt::to_string(shape)));
  }
  if (full_shape == x.shape()) return x;
  return x.graph->add(OpKind::kReshape, {x}, {}, {{x.dtype(), full_shape}}, {}, site)[0];
}

Value expand_dims(Value x, int64_t axis, Site site) {
  Shape shape = x.shape();
  const int64_t at = axis < 0 ? axis + x.rank() + 1 : axis;
  if (at < 0 || at > x.rank()) {
    shape_error(OpKind::kReshape, x.graph, site,
                fmt::format("axis {} is outside shape {}", axis, mt::to_string(x.shape())));
  }
  shape.insert(shape.begin() + at, 1);
  return reshape(x, shape, site);
}

Value squeeze(Value x, int64_t axis, Site site) {
  const int64_t at = normalise(OpKind::kReshape, x, axis, site);
  Shape shape = x.shape();
  if (shape[static_cast<size_t>(at)] != 1) {
    shape_error(OpKind::kReshape, x.graph, site,
                fmt::format("axis {} of {} is not 1", axis, mt::to_string(shape)));
  }
  shape.erase(shape.begin() + at);
  return reshape(x, shape, site);
}

Value transpose(Value x, std::vector<int64_t> permutation, Site site) {
  std::vector<int64_t> sorted = permutation;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int64_t> identity(x.shape().size());
  std::iota(identity.begin(), identity.end(), 0);
  if (sorted != identity) {
    shape_error(OpKind::kTranspose, x.graph, site,
                fmt::format("{} is no permutation of the axes of {}", permutation,
                            mt::to_string(x.shape())));
  }
  if (permutation == identity) return x;
  Shape shape;
  for (const int64_t p : permutation) shape.push_back(x.dim(p));
  return x.graph->add(OpKind::kTranspose, {x}, Axes{std::move(permutation)}, {{x.dtype(), shape}},
                      {}, site)[0];
}

Value slice(Value x, std::vector<int64_t> start, std::vector<int64_t> limit,
            std::vector<int64_t> stride, Site site) {
  if (stride.empty()) stride.assign(start.size(), 1);
  bool good = start.size() == x.shape().size() && limit.size() == start.size() &&
              stride.size() == start.size();
  Shape shape;
  for (size_t i = 0; good && i < start.size(); ++i) {
    good = start[i] >= 0 && start[i] <= limit[i] && limit[i] <= x.shape()[i] && stride[i] > 0;
    if (good) shape.push_back((limit[i] - start[i] + stride[i] - 1) / stride[i]);
  }
  if (!good) {
    shape_error(OpKind::kSlice, x.graph, site,
                fmt::format("[{}, {}) by {} is outside {}", start, limit, stride,
                            mt::to_string(x.shape())));
  }
  if (shape == x.shape()) return x;
  return x.graph->add(OpKind::kSlice, {x},
                      SliceDims{std::move(start), std::move(limit), std::move(stride)},
                      {{x.dtype(), shape}}, {}, site)[0];
}

Value slice_axis(Value x, int64_t axis, int64_t start, int64_t limit, Site site) {
  const auto at = static_cast<size_t>(normalise(OpKind::kSlice, x, axis, site));
  std::vector<int64_t> from(x.shape().size(), 0), to = x.shape();
  from[at] = start;
  to[at] = limit;
  return slice(x, from, to, {}, site);
}

Value pad(Value x, double value, std::vector<int64_t> low, std::vector<int64_t> high,
          std::vector<int64_t> interior, Site site) {
  if (interior.empty()) interior.assign(low.size(), 0);
  bool good =
      low.size() == x.shape().size() && high.size() == low.size() && interior.size() == low.size();
  Shape shape;
  for (size_t i = 0; good && i < low.size(); ++i) {
    const int64_t n = x.shape()[i];
    shape.push_back(low[i] + high[i] + n + std::max<int64_t>(n - 1, 0) * interior[i]);
    good = shape.back() >= 0 && interior[i] >= 0;
  }
  if (!good) {
    shape_error(OpKind::kPad, x.graph, site,
                fmt::format("low {} high {} interior {} does not fit {}", low, high, interior,
                            mt::to_string(x.shape())));
  }
  const auto zero = [](int64_t v) { return v == 0; };
  if (std::all_of(low.begin(), low.end(), zero) && std::all_of(high.begin(), high.end(), zero) &&
      std::all_of(interior.begin(), interior.end(), zero)) {
    return x;
  }
  const Value filler = full(*x.graph, x.dtype(), {}, value, site);
  return x.graph->add(OpKind::kPad, {x, filler},
                      PadDims{std::move(low), std::move(high), std::move(interior)},
                      {{x.dtype(), shape}}, {}, site)[0];
}

Value concatenate(const std::vector<Value>& parts, int64_t axis, Site site) {
  MT_CHECK(!parts.empty());
  Graph& graph = graph_of(parts);
  const int64_t at = normalise(OpKind::kConcatenate, parts[0], axis, site);
  Shape shape = parts[0].shape();
  int64_t total = 0;
  for (const Value& part : parts) {
    Shape expected = shape;
    bool good = part.rank() == parts[0].rank() && part.dtype() == parts[0].dtype();
    if (good) {
      expected[static_cast<size_t>(at)] = part.dim(at);
      good = expected == part.shape();
    }
    if (!good) {
      shape_error(OpKind::kConcatenate, &graph, site,
                  fmt::format("{} does not join {} along axis {}", to_string(part.type()),
                              to_string(parts[0].type()), at));
    }
    total += part.dim(at);
  }
  if (parts.size() == 1) return parts[0];
  shape[static_cast<size_t>(at)] = total;
  return graph.add(OpKind::kConcatenate, parts, Axes{{at}}, {{parts[0].dtype(), shape}}, {},
                   site)[0];
}

Value dynamic_slice(Value x, const std::vector<Value>& starts, const Shape& sizes, Site site) {
  check_scalar_starts(OpKind::kDynamicSlice, x, starts, site);
  bool good = sizes.size() == x.shape().size();
  for (size_t i = 0; good && i < sizes.size(); ++i)
    good = sizes[i] >= 0 && sizes[i] <= x.shape()[i];
  if (!good) {
    shape_error(OpKind::kDynamicSlice, x.graph, site,
                fmt::format("sizes {} do not fit {}", sizes, mt::to_string(x.shape())));
  }
  std::vector<Value> operands{x};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return graph_of(operands).add(OpKind::kDynamicSlice, operands, Axes{sizes}, {{x.dtype(), sizes}},
                                {}, site)[0];
}

Value dynamic_update_slice(Value x, Value update, const std::vector<Value>& starts, Site site) {
  check_scalar_starts(OpKind::kDynamicUpdateSlice, x, starts, site);
  bool good = update.rank() == x.rank() && update.dtype() == x.dtype();
  for (int64_t i = 0; good && i < x.rank(); ++i) good = update.dim(i) <= x.dim(i);
  if (!good) {
    shape_error(
        OpKind::kDynamicUpdateSlice, x.graph, site,
        fmt::format("update {} does not fit {}", to_string(update.type()), to_string(x.type())));
  }
  std::vector<Value> operands{x, update};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return graph_of(operands).add(OpKind::kDynamicUpdateSlice, operands, {}, {x.type()}, {}, site)[0];
}

Value take_rows(Value table, Value indices, Site site) {
  if (table.rank() < 1 || !is_integer(indices.dtype())) {
    shape_error(OpKind::kTakeRows, &graph_of({table, indices}), site,
                fmt::format("needs a table and integer indices, found {} and {}",
                            to_string(table.type()), to_string(indices.type())));
  }
  Shape shape = indices.shape();
  shape.insert(shape.end(), table.shape().begin() + 1, table.shape().end());
  return graph_of({table, indices})
      .add(OpKind::kTakeRows, {table, indices}, {}, {{table.dtype(), shape}}, {}, site)[0];
}

Value scatter_add_rows(Value table, Value indices, Value updates, Site site) {
  Shape expected = indices.shape();
  if (table.rank() >= 1) {
    expected.insert(expected.end(), table.shape().begin() + 1, table.shape().end());
  }
  if (table.rank() < 1 || !is_integer(indices.dtype()) || updates.shape() != expected ||
      updates.dtype() != table.dtype()) {
    shape_error(
        OpKind::kScatterAddRows, &graph_of({table, indices, updates}), site,
        fmt::format("updates {} do not fit table {} at indices {}", to_string(updates.type()),
                    to_string(table.type()), to_string(indices.type())));
  }
  return graph_of({table, indices, updates})
      .add(OpKind::kScatterAddRows, {table, indices, updates}, {}, {table.type()}, {}, site)[0];
}

}  // namespace mt::ir
