#include "ir/passes.h"

#include <fmt/format.h>

#include <unordered_map>

#include "base/error.h"

namespace mt::ir {
namespace {

bool is_inlined(OpKind kind) {
  return kind == OpKind::kRemat || kind == OpKind::kCustomVjp || kind == OpKind::kName;
}

bool is_mergeable(const Node& node) {
  if (!node.regions.empty() || node.results.size() != 1) return false;
  return node.kind != OpKind::kParameter && node.kind != OpKind::kBarrier &&
         node.kind != OpKind::kCustomCall && node.kind != OpKind::kAllReduce;
}

// Copies nodes of a source graph into `out`, inlining and merging on the way.
class Rebuilder {
 public:
  explicit Rebuilder(Graph& out) : out_(out) {}

  // `map`: source value id -> value of out; parameters are set by the caller.
  void copy(const Graph& source, std::vector<Value>& map) {
    for (const Node& node : source.nodes()) {
      if (node.kind == OpKind::kParameter) continue;
      std::vector<Value> operands;
      for (const int32_t id : node.operands) operands.push_back(map[static_cast<size_t>(id)]);
      const std::vector<Value> results =
          is_inlined(node.kind) ? inlined(node, operands) : merged(source, node, operands);
      for (size_t i = 0; i < results.size(); ++i) {
        map[static_cast<size_t>(node.results[i])] = results[i];
      }
    }
  }

 private:
  std::vector<Value> inlined(const Node& node, const std::vector<Value>& operands) {
    if (node.kind == OpKind::kName) return {operands.back()};
    const Graph& body = *node.regions[0];
    std::vector<Value> map(body.value_count());
    for (size_t i = 0; i < operands.size(); ++i) {
      map[static_cast<size_t>(body.parameters()[i])] = operands[i];
    }
    copy(body, map);
    std::vector<Value> outputs;
    for (const Value& v : body.outputs) outputs.push_back(map[static_cast<size_t>(v.id)]);
    return outputs;
  }

  std::vector<Value> merged(const Graph& source, const Node& node,
                            const std::vector<Value>& operands) {
    std::vector<Type> types;
    for (const int32_t id : node.results) types.push_back(source.type_of(id));
    std::string key;
    if (is_mergeable(node)) {
      key = fmt::format("{}|{}|{}", static_cast<int>(node.kind), describe(node.attributes),
                        to_string(types[0]));
      for (const Value& v : operands) key += fmt::format(",{}", v.id);
      if (const auto it = seen_.find(key); it != seen_.end()) return {it->second};
    }
    std::vector<std::shared_ptr<Graph>> regions;
    for (const auto& region : node.regions) regions.push_back(optimise(*region));
    const auto results = out_.add(node.kind, operands, node.attributes, std::move(types),
                                  std::move(regions), node.site);
    out_.nodes().back().path = node.path;
    if (!key.empty()) seen_.emplace(std::move(key), results[0]);
    return results;
  }

  Graph& out_;
  std::unordered_map<std::string, Value> seen_;
};

std::vector<bool> live_nodes(const Graph& graph) {
  std::vector<bool> live(graph.nodes().size(), false);
  for (const Value& v : graph.outputs) live[static_cast<size_t>(graph.node_of(v.id))] = true;
  for (size_t i = live.size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    const auto* call = std::get_if<CustomCallInfo>(&node.attributes);
    if (node.kind == OpKind::kParameter || (call != nullptr && call->has_side_effect))
      live[i] = true;
    if (!live[i]) continue;
    for (const int32_t id : node.operands) live[static_cast<size_t>(graph.node_of(id))] = true;
  }
  return live;
}

std::shared_ptr<Graph> drop_dead(const Graph& graph) {
  auto out = std::make_shared<Graph>();
  const std::vector<bool> live = live_nodes(graph);
  std::vector<Value> map(graph.value_count());
  for (const int32_t id : graph.parameters()) {
    const Node& node = graph.definition(id);
    map[static_cast<size_t>(id)] =
        out->parameter(graph.type_of(id), std::get<Label>(node.attributes).text);
  }
  for (size_t i = 0; i < live.size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (!live[i] || node.kind == OpKind::kParameter) continue;
    std::vector<Value> operands;
    for (const int32_t id : node.operands) operands.push_back(map[static_cast<size_t>(id)]);
    std::vector<Type> types;
    for (const int32_t id : node.results) types.push_back(graph.type_of(id));
    const auto results =
        out->add(node.kind, operands, node.attributes, std::move(types), node.regions, node.site);
    out->nodes().back().path = node.path;
    for (size_t r = 0; r < results.size(); ++r) {
      map[static_cast<size_t>(node.results[r])] = results[r];
    }
  }
  for (const Value& v : graph.outputs) out->outputs.push_back(map[static_cast<size_t>(v.id)]);
  return out;
}

void dump_into(const Graph& graph, int indent, std::string& out) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  for (const Node& node : graph.nodes()) {
    out += margin;
    for (size_t i = 0; i < node.results.size(); ++i) {
      out += fmt::format("{}%{}", i == 0 ? "" : ", ", node.results[i]);
    }
    out += fmt::format(" = {}", name(node.kind));
    for (size_t i = 0; i < node.operands.size(); ++i) {
      out += fmt::format("{}%{}", i == 0 ? " " : ", ", node.operands[i]);
    }
    const std::string attributes = describe(node.attributes);
    if (!attributes.empty()) out += fmt::format(" {{{}}}", attributes);
    for (size_t i = 0; i < node.results.size(); ++i) {
      out += fmt::format("{}{}", i == 0 ? " : " : ", ", to_string(graph.type_of(node.results[i])));
    }
    if (!node.path.empty()) out += "  # " + node.path;
    out += '\n';
    for (const auto& region : node.regions) dump_into(*region, indent + 4, out);
  }
  out += margin + "return";
  for (const Value& v : graph.outputs) out += fmt::format(" %{}", v.id);
  out += '\n';
}

}  // namespace

std::shared_ptr<Graph> optimise(const Graph& graph) {
  Graph merged;
  std::vector<Value> map(graph.value_count());
  for (const int32_t id : graph.parameters()) {
    map[static_cast<size_t>(id)] =
        merged.parameter(graph.type_of(id), std::get<Label>(graph.definition(id).attributes).text);
  }
  Rebuilder(merged).copy(graph, map);
  for (const Value& v : graph.outputs) merged.outputs.push_back(map[static_cast<size_t>(v.id)]);
  return drop_dead(merged);
}

std::string dump(const Graph& graph) {
  std::string out;
  dump_into(graph, 0, out);
  return out;
}

int64_t count(const Graph& graph, OpKind kind) {
  int64_t n = 0;
  for (const Node& node : graph.nodes()) {
    n += node.kind == kind ? 1 : 0;
    for (const auto& region : node.regions) n += count(*region, kind);
  }
  return n;
}

}  // namespace mt::ir
