#include "ir/graph.h"

#include <fmt/format.h>

#include "base/error.h"

namespace mt::ir {
namespace {

std::string in_path(const std::string& path) {
  return path.empty() ? "" : fmt::format(" (in {})", path);
}

}  // namespace

const Type& Value::type() const {
  MT_CHECK(graph != nullptr);
  return graph->type_of(id);
}

int64_t Value::dim(int64_t axis) const {
  const int64_t i = axis < 0 ? axis + rank() : axis;
  MT_CHECK(i >= 0 && i < rank());
  return shape()[static_cast<size_t>(i)];
}

Graph::Graph(Graph* parent) : parent_(parent) {
  if (parent_ != nullptr) {
    depth_ = parent_->depth_ + 1;
    path = parent_->path;
  }
}

bool Graph::encloses(const Graph* inner) const {
  for (const Graph* g = inner; g != nullptr; g = g->parent_) {
    if (g == this) return true;
  }
  return false;
}

Value Graph::parameter(Type type, std::string name) {
  const Value v = add(OpKind::kParameter, {}, Label{std::move(name)}, {std::move(type)})[0];
  parameters_.push_back(v.id);
  return v;
}

Value Graph::import(Value value) {
  MT_CHECK(value.graph != nullptr);
  if (value.graph == this) return value;
  if (parent_ == nullptr) {
    throw fail(ErrorKind::kShape, "a value of another trace is used here{}", in_path(path));
  }
  const Value outer = parent_->import(value);
  for (size_t i = 0; i < captured_.size(); ++i) {
    if (captured_[i] == outer) return {this, captured_as_[i]};
  }
  const Value inner = parameter(outer.type());
  captured_.push_back(outer);
  captured_as_.push_back(inner.id);
  return inner;
}

std::vector<Value> Graph::add(OpKind kind, const std::vector<Value>& operands,
                              Attributes attributes, std::vector<Type> results,
                              std::vector<std::shared_ptr<Graph>> regions, Site site) {
  std::vector<int32_t> ids;
  ids.reserve(operands.size());
  for (const Value& v : operands) ids.push_back(import(v).id);
  Node node;
  node.kind = kind;
  node.operands = std::move(ids);
  node.attributes = std::move(attributes);
  node.regions = std::move(regions);
  node.path = path;
  node.site = site;
  nodes_.push_back(std::move(node));
  std::vector<Value> values;
  for (Type& type : results) {
    values.push_back(add_result(static_cast<int32_t>(nodes_.size()) - 1, std::move(type)));
  }
  return values;
}

Value Graph::add_result(int32_t node, Type type) {
  const auto id = static_cast<int32_t>(values_.size());
  values_.push_back({std::move(type), node});
  nodes_[static_cast<size_t>(node)].results.push_back(id);
  return {this, id};
}

Scope::Scope(Graph& graph, std::string_view name) : graph_(graph), length_(graph.path.size()) {
  if (!graph_.path.empty() && !name.empty()) graph_.path += '/';
  graph_.path += name;
}

Graph& graph_of(const std::vector<Value>& values) {
  MT_CHECK(!values.empty());
  Graph* deepest = values[0].graph;
  for (const Value& v : values) {
    MT_CHECK(v.graph != nullptr);
    if (v.graph->depth() > deepest->depth()) deepest = v.graph;
  }
  for (const Value& v : values) {
    if (!v.graph->encloses(deepest)) {
      throw fail(ErrorKind::kShape, "operands come from different traces{}",
                 in_path(deepest->path));
    }
  }
  return *deepest;
}

std::vector<Value> inline_graph(const Graph& body, Graph& destination,
                                const std::vector<Value>& arguments,
                                const std::vector<Value>& substitutions) {
  MT_CHECK(arguments.size() == body.parameters().size());
  std::vector<Value> map(body.value_count());
  for (size_t i = 0; i < arguments.size(); ++i) {
    map[static_cast<size_t>(body.parameters()[i])] = arguments[i];
  }
  const auto substitute = [&](int32_t id) {
    const auto i = static_cast<size_t>(id);
    if (i >= substitutions.size() || !substitutions[i]) return;
    map[i] = destination.add(OpKind::kName, {map[i], substitutions[i]}, Label{"saved"},
                             {substitutions[i].type()})[0];
  };
  for (const Node& node : body.nodes()) {
    if (node.kind == OpKind::kParameter) {
      substitute(node.results[0]);
      continue;
    }
    std::vector<Value> operands;
    for (const int32_t id : node.operands) operands.push_back(map[static_cast<size_t>(id)]);
    std::vector<Type> types;
    for (const int32_t id : node.results) types.push_back(body.type_of(id));
    const auto results = destination.add(node.kind, operands, node.attributes, std::move(types),
                                         node.regions, node.site);
    destination.nodes().back().path = node.path;
    for (size_t i = 0; i < results.size(); ++i) {
      map[static_cast<size_t>(node.results[i])] = results[i];
      substitute(node.results[i]);
    }
  }
  std::vector<Value> outputs;
  for (const Value& v : body.outputs) outputs.push_back(map[static_cast<size_t>(v.id)]);
  return outputs;
}

void shape_error(OpKind kind, const Graph* graph, Site site, const std::string& message) {
  std::string where = graph != nullptr ? graph->path : "";
  if (site.line > 0) {
    if (!where.empty()) where += ", ";
    const std::string_view file = site.file;
    const size_t src = file.rfind("src/");
    where +=
        fmt::format("{}:{}", src == std::string_view::npos ? file : file.substr(src), site.line);
  }
  throw fail(ErrorKind::kShape, "[{}] {}{}", name(kind), message,
             where.empty() ? "" : fmt::format(" (in {})", where));
}

}  // namespace mt::ir
