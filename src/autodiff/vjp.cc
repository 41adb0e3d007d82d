#include "autodiff/vjp.h"

#include <fmt/format.h>

#include "autodiff/rules.h"
#include "base/error.h"
#include "ir/ops.h"

namespace mt::autodiff {
namespace {

using ir::Graph;
using ir::Node;
using ir::OpKind;
using ir::Value;

bool is_zero_constant(Value v) {
  const Node* node = &v.graph->definition(v.id);
  while (node->kind == OpKind::kBroadcast) node = &v.graph->definition(node->operands[0]);
  const auto* splat = std::get_if<ir::Splat>(&node->attributes);
  return splat != nullptr && splat->value == 0;
}

// Values that depend on `wrt` through differentiable dtypes, among nodes from `first_node`.
std::vector<bool> active_values(Graph& graph, size_t first_node, const std::vector<Value>& wrt) {
  std::vector<bool> active(graph.value_count(), false);
  for (const Value& v : wrt) active[static_cast<size_t>(v.id)] = true;
  for (size_t i = first_node; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    bool any = false;
    for (const int32_t id : node.operands) any = any || active[static_cast<size_t>(id)];
    if (!any) continue;
    for (const int32_t id : node.results) {
      if (is_float(graph.type_of(id).dtype)) active[static_cast<size_t>(id)] = true;
    }
  }
  return active;
}

class Sweep {
 public:
  Sweep(Graph& graph, size_t first_node, const std::vector<Value>& wrt)
      : graph_(graph),
        first_(first_node),
        end_(graph.nodes().size()),
        active_(active_values(graph, first_node, wrt)),
        cotangent_(graph.value_count()),
        stand_in_(graph.value_count(), -1) {
    for (size_t i = first_; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      if (node.kind == OpKind::kName && node.operands.size() == 2) {
        stand_in_[static_cast<size_t>(node.operands[0])] = node.results[0];
      }
    }
  }

  void seed(Value output, Value cotangent) {
    if (cotangent && active_[static_cast<size_t>(output.id)]) add(output.id, cotangent);
  }

  void run() {
    const std::string path = graph_.path;
    for (size_t i = end_; i-- > first_;) step(i);
    graph_.path = path;
  }

  Value gradient(Value v) const { return cotangent_[static_cast<size_t>(v.id)]; }

 private:
  void add(int32_t id, Value more) {
    Value& slot = cotangent_[static_cast<size_t>(id)];
    slot = accumulate(slot, more);
  }

  void step(size_t index) {
    const Node& node = graph_.nodes()[index];
    if (node.kind == OpKind::kParameter) return;
    RuleInput in{graph_, index, {}, {}, {}, {}};
    bool flows = false;
    for (const int32_t id : node.results) {
      const int32_t saved = stand_in_[static_cast<size_t>(id)];
      in.results.push_back(graph_.value(saved >= 0 ? saved : id));
      in.cotangents.push_back(cotangent_[static_cast<size_t>(id)]);
      flows = flows || in.cotangents.back();
    }
    if (!flows) return;
    bool any = false;
    for (const int32_t id : node.operands) {
      in.operands.push_back(graph_.value(id));
      const bool wanted = active_[static_cast<size_t>(id)] && is_float(graph_.type_of(id).dtype);
      in.wanted.push_back(wanted);
      any = any || wanted;
    }
    if (!any) return;
    const RuleRow& row = kRules[static_cast<size_t>(node.kind)];
    if (row.is_error) ir::shape_error(node.kind, &graph_, node.site, row.reason);
    if (row.rule == nullptr) return;
    graph_.path = node.path + (node.path.empty() ? "vjp" : "/vjp");
    const std::vector<Value> gradients = row.rule(in);
    MT_CHECK(gradients.size() == in.operands.size());
    for (size_t k = 0; k < gradients.size(); ++k) {
      if (!gradients[k] || !in.wanted[k]) continue;
      MT_CHECK(gradients[k].type() == in.operands[k].type());
      add(in.operands[k].id, gradients[k]);
    }
  }

  Graph& graph_;
  size_t first_, end_;  // nodes of the backward pass, which grows while it is made, come after
  std::vector<bool> active_;
  std::vector<Value> cotangent_;
  std::vector<int32_t> stand_in_;  // the saved value that rules use in place of a recomputed one
};

}  // namespace

Value accumulate(Value a, Value b) {
  if (!a) return b;
  if (!b) return a;
  // x + scatter(zeros, ...) is a scatter into x: the table's gradient is touched once, in place.
  for (int side = 0; side < 2; ++side, std::swap(a, b)) {
    const Node& node = b.graph->definition(b.id);
    if (node.kind == OpKind::kScatterAddRows && b.graph == a.graph &&
        is_zero_constant(b.graph->value(node.operands[0]))) {
      return ir::scatter_add_rows(a, b.graph->value(node.operands[1]),
                                  b.graph->value(node.operands[2]));
    }
  }
  return a + b;
}

std::vector<Value> sweep(Graph& graph, size_t first_node, const std::vector<Value>& outputs,
                         const std::vector<Value>& cotangents, const std::vector<Value>& wrt) {
  MT_CHECK(outputs.size() == cotangents.size());
  Sweep state(graph, first_node, wrt);
  for (size_t i = 0; i < outputs.size(); ++i) state.seed(outputs[i], cotangents[i]);
  state.run();
  std::vector<Value> gradients;
  for (const Value& v : wrt) gradients.push_back(state.gradient(v));
  return gradients;
}

std::vector<Value> vjp(const std::vector<Value>& outputs, const std::vector<Value>& cotangents,
                       const std::vector<Value>& wrt) {
  Graph& graph = ir::graph_of(outputs);
  MT_CHECK(outputs.size() == cotangents.size());
  std::vector<Value> here, seeds;  // as seen from the innermost graph
  for (const Value& v : outputs) here.push_back(graph.import(v));
  for (const Value& v : cotangents) seeds.push_back(v ? graph.import(v) : v);
  for (const Value& v : wrt) {
    if (v.graph == &graph) continue;
    // Work on outer values alone is done outside: its gradient would silently be missing.
    throw fail(
        ErrorKind::kShape,
        "[vjp] the gradient of a value of another trace is asked for; import it into the region "
        "and use what import() returns (in {})",
        graph.path);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (cotangents[i] && cotangents[i].type() != outputs[i].type()) {
      throw fail(ErrorKind::kShape, "[vjp] cotangent {} is {}, the output is {}", i,
                 to_string(cotangents[i].type()), to_string(outputs[i].type()));
    }
  }
  std::vector<Value> gradients = sweep(graph, 0, here, seeds, wrt);
  for (size_t i = 0; i < wrt.size(); ++i) {
    if (!gradients[i]) gradients[i] = ir::zeros_like(wrt[i]);
  }
  return gradients;
}

std::vector<Value> grad(Value scalar, const std::vector<Value>& wrt) {
  if (scalar.rank() != 0 || !is_float(scalar.dtype())) {
    throw fail(ErrorKind::kShape, "[grad] needs a float scalar, found {}",
               to_string(scalar.type()));
  }
  return vjp({scalar}, {ir::full(*scalar.graph, scalar.dtype(), {}, 1)}, wrt);
}

}  // namespace mt::autodiff
