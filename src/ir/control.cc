// Operations with regions, and those that only annotate.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "ir/ops.h"

namespace mt::ir {
namespace {

struct Traced {
  std::shared_ptr<Graph> region;
  std::vector<Value> captured;  // values of the enclosing graph
};

// Traces body as a region of `outer` with the given parameter types.
Traced trace(Graph& outer, const std::vector<Type>& types, const Body& body) {
  Traced out;
  out.region = std::make_shared<Graph>(&outer);
  std::vector<Value> parameters;
  for (const Type& type : types) parameters.push_back(out.region->parameter(type));
  for (const Value& v : body(parameters)) out.region->outputs.push_back(out.region->import(v));
  out.captured = out.region->captured();
  return out;
}

std::vector<Type> types_of(const std::vector<Value>& values) {
  std::vector<Type> types;
  for (const Value& v : values) types.push_back(v.type());
  return types;
}

void append(std::vector<Value>& to, const std::vector<Value>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

Graph& graph_or(const std::vector<Value>& a, const std::vector<Value>& b) {
  std::vector<Value> all = a;
  append(all, b);
  return graph_of(all);
}

void check_carry(OpKind kind, const Graph& graph, const Graph& region,
                 const std::vector<Value>& init, Site site) {
  if (region.outputs.size() < init.size()) {
    shape_error(kind, &graph, site,
                fmt::format("the body returns {} values, {} are carried", region.outputs.size(),
                            init.size()));
  }
  for (size_t i = 0; i < init.size(); ++i) {
    if (region.outputs[i].type() != init[i].type()) {
      shape_error(kind, &graph, site,
                  fmt::format("carry {} enters as {} and leaves as {}", i,
                              to_string(init[i].type()), to_string(region.outputs[i].type())));
    }
  }
}

}  // namespace

Value checkpoint_name(Value x, std::string tag, Site site) {
  return x.graph->add(OpKind::kName, {x}, Label{std::move(tag)}, {x.type()}, {}, site)[0];
}

std::vector<Value> barrier(const std::vector<Value>& values, Site site) {
  return graph_of(values).add(OpKind::kBarrier, values, {}, types_of(values), {}, site);
}

Value sharding_constraint(Value x, const sharding::PartitionSpec& spec, Site site) {
  if (static_cast<int64_t>(spec.dims.size()) != x.rank()) {
    shape_error(OpKind::kShardingConstraint, x.graph, site,
                fmt::format("{} names {} dimensions, the value is {}", to_string(spec),
                            spec.dims.size(), to_string(x.type())));
  }
  return x.graph->add(OpKind::kShardingConstraint, {x}, Spec{spec}, {x.type()}, {}, site)[0];
}

std::vector<Value> custom_call(Graph& graph, CustomCallInfo info,
                               const std::vector<Value>& operands, std::vector<Type> results,
                               Site site) {
  return graph.add(OpKind::kCustomCall, operands, std::move(info), std::move(results), {}, site);
}

std::vector<Value> while_loop(const std::vector<Value>& init, const Body& condition,
                              const Body& body, Site site) {
  Graph& graph = graph_of(init);
  const std::vector<Type> types = types_of(init);
  Traced c = trace(graph, types, condition);
  Traced b = trace(graph, types, body);
  check_carry(OpKind::kWhile, graph, *b.region, init, site);
  if (c.region->outputs.size() != 1 || c.region->outputs[0].type() != Type{DType::kPred, {}}) {
    shape_error(OpKind::kWhile, &graph, site, "the condition must return one bool scalar");
  }
  // Captured values travel as carries that do not change; both regions see all of them.
  std::vector<Value> state = init;
  append(state, c.captured);
  append(state, b.captured);
  const std::vector<Type> state_types = types_of(state);
  const size_t n = init.size(), nc = c.captured.size();
  const auto widen = [&](const Graph& region, size_t skip, size_t count, bool carry) {
    auto out = std::make_shared<Graph>(&graph);
    std::vector<Value> parameters;
    for (const Type& type : state_types) parameters.push_back(out->parameter(type));
    std::vector<Value> arguments(parameters.begin(), parameters.begin() + static_cast<long>(n));
    for (size_t i = 0; i < count; ++i) arguments.push_back(parameters[n + skip + i]);
    out->outputs = inline_graph(region, *out, arguments);
    if (carry) {
      out->outputs.insert(out->outputs.end(), parameters.begin() + static_cast<long>(n),
                          parameters.end());
    }
    return out;
  };
  auto results = graph.add(
      OpKind::kWhile, state, {}, state_types,
      {widen(*c.region, 0, nc, false), widen(*b.region, nc, b.captured.size(), true)}, site);
  results.resize(n);
  return results;
}

std::vector<Value> scan(const std::vector<Value>& init, const std::vector<Value>& xs,
                        const ScanOptions& options, const Body& body, Site site) {
  Graph& graph = graph_or(init, xs);
  ScanInfo info{options.length, static_cast<int64_t>(init.size()), options.x_axes, options.y_axes,
                options.reverse};
  if (info.length < 1) {
    shape_error(OpKind::kScan, &graph, site, fmt::format("length {} is below 1", info.length));
  }
  if (info.x_axes.size() > xs.size()) {
    shape_error(OpKind::kScan, &graph, site,
                fmt::format("{} axes are given for {} xs", info.x_axes.size(), xs.size()));
  }
  info.x_axes.resize(xs.size(), 0);
  std::vector<Type> types = types_of(init);
  for (size_t i = 0; i < xs.size(); ++i) {
    Shape shape = xs[i].shape();
    const int64_t axis = info.x_axes[i];
    if (axis < 0 || axis >= xs[i].rank() || xs[i].dim(axis) != info.length) {
      shape_error(OpKind::kScan, &graph, site,
                  fmt::format("x {} is {}: axis {} must have the length {}", i,
                              to_string(xs[i].type()), axis, info.length));
    }
    shape.erase(shape.begin() + axis);
    types.push_back({xs[i].dtype(), shape});
  }
  Traced traced = trace(graph, types, body);
  info.y_axes = options.y_axes;  // only now: nnx::scan learns them while its body is traced
  check_carry(OpKind::kScan, graph, *traced.region, init, site);
  const size_t ys = traced.region->outputs.size() - init.size();
  if (info.y_axes.size() > ys) {
    shape_error(OpKind::kScan, &graph, site,
                fmt::format("{} axes are given for {} ys", info.y_axes.size(), ys));
  }
  info.y_axes.resize(ys, 0);
  std::vector<Type> results = types_of(init);
  for (size_t i = 0; i < ys; ++i) {
    Type type = traced.region->outputs[init.size() + i].type();
    if (info.y_axes[i] < 0 || info.y_axes[i] > static_cast<int64_t>(type.shape.size())) {
      shape_error(OpKind::kScan, &graph, site,
                  fmt::format("y {} is {}: it cannot be stacked at axis {}", i, to_string(type),
                              info.y_axes[i]));
    }
    type.shape.insert(type.shape.begin() + info.y_axes[i], info.length);
    results.push_back(type);
  }
  std::vector<Value> operands = init;
  append(operands, xs);
  append(operands, traced.captured);
  return graph.add(OpKind::kScan, operands, std::move(info), std::move(results),
                   {std::move(traced.region)}, site);
}

std::vector<Value> remat(const std::vector<Value>& arguments, std::vector<std::string> saved,
                         const Body& body, Site site) {
  Graph& graph = graph_of(arguments);
  Traced traced = trace(graph, types_of(arguments), body);
  std::vector<Value> operands = arguments;
  append(operands, traced.captured);
  std::vector<Type> results = types_of(traced.region->outputs);
  return graph.add(OpKind::kRemat, operands, RematInfo{std::move(saved)}, std::move(results),
                   {std::move(traced.region)}, site);
}

std::vector<Value> custom_vjp(std::string label, const std::vector<Value>& arguments,
                              const Body& body, CustomVjpRule rule, Site site) {
  Graph& graph = graph_of(arguments);
  Traced traced = trace(graph, types_of(arguments), body);
  const size_t declared = arguments.size();
  std::vector<Value> operands = arguments;
  append(operands, traced.captured);
  // The rule speaks of the declared arguments; captured operands get no gradient.
  CustomVjpRule padded = [rule = std::move(rule), declared](const std::vector<Value>& all,
                                                            const std::vector<Value>& results,
                                                            const std::vector<Value>& cotangents) {
    const std::vector<Value> own(all.begin(), all.begin() + static_cast<long>(declared));
    std::vector<Value> gradients = rule(own, results, cotangents);
    MT_CHECK(gradients.size() == declared);
    gradients.resize(all.size());
    return gradients;
  };
  std::vector<Type> results = types_of(traced.region->outputs);
  return graph.add(OpKind::kCustomVjp, operands, CustomVjpInfo{std::move(label), std::move(padded)},
                   std::move(results), {std::move(traced.region)}, site);
}

std::vector<Value> manual_computation(const std::vector<Value>& arguments, ManualInfo info,
                                      const sharding::Mesh& mesh, std::vector<Type> results,
                                      const Body& body, Site site) {
  Graph& graph = graph_of(arguments);
  MT_CHECK(info.in.size() == arguments.size() && info.out.size() == results.size());
  std::vector<Type> local;
  for (size_t i = 0; i < arguments.size(); ++i) {
    local.push_back(
        {arguments[i].dtype(), sharding::shard_shape(mesh, info.in[i], arguments[i].shape())});
  }
  Traced traced = trace(graph, local, body);
  if (!traced.captured.empty()) {
    shape_error(OpKind::kManualComputation, &graph, site,
                "the body uses an outer value; pass it as an argument with its sharding");
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const Shape expected = sharding::shard_shape(mesh, info.out[i], results[i].shape);
    if (i >= traced.region->outputs.size() || traced.region->outputs[i].shape() != expected) {
      shape_error(OpKind::kManualComputation, &graph, site,
                  fmt::format("result {} should be the shard {}", i, mt::to_string(expected)));
    }
  }
  return graph.add(OpKind::kManualComputation, arguments, std::move(info), std::move(results),
                   {std::move(traced.region)}, site);
}

Value all_reduce(Value x, std::vector<std::string> axes, Site site) {
  return x.graph->add(OpKind::kAllReduce, {x}, AllReduceInfo{std::move(axes)}, {x.type()}, {},
                      site)[0];
}

}  // namespace mt::ir
