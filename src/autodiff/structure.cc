// Gradients of the ops with regions.
//
// scan: the body is traced once more together with its own backward pass (the "joint" graph), which
// is then cut in two. What the backward half needs of the forward half is stacked by the forward
// scan, unless it is an input (passed again) or follows from constants (computed again).
// remat: the body is cloned behind an optimisation barrier and differentiated there; values that
// carry a saved tag become further results of the forward node and replace their recomputation.
#include <algorithm>
#include <set>

#include "autodiff/rules.h"
#include "autodiff/vjp.h"
#include "base/error.h"

namespace mt::autodiff {
namespace {

using ir::Graph;
using ir::Node;
using ir::OpKind;
using ir::Value;
using Values = std::vector<Value>;

std::vector<ir::Type> result_types(const Graph& graph, const Node& node) {
  std::vector<ir::Type> types;
  for (const int32_t id : node.results) types.push_back(graph.type_of(id));
  return types;
}

// Clones one node into `to`; `map` goes from value ids of `from` to values of `to`.
void clone_node(const Graph& from, const Node& node, Graph& to, Values& map) {
  Values operands;
  for (const int32_t id : node.operands) {
    MT_CHECK(map[static_cast<size_t>(id)]);
    operands.push_back(map[static_cast<size_t>(id)]);
  }
  const auto results = to.add(node.kind, operands, node.attributes, result_types(from, node),
                              node.regions, node.site);
  to.nodes().back().path = node.path;
  for (size_t i = 0; i < results.size(); ++i)
    map[static_cast<size_t>(node.results[i])] = results[i];
}

// What a node's value depends on: a name of two operands has the second's value.
std::vector<int32_t> used_operands(const Node& node) {
  if (node.kind == OpKind::kName && node.operands.size() == 2) return {node.operands[1]};
  return node.operands;
}

// The joint graph of a scan's body and its backward pass, and how it is cut.
class ScanVjp {
 public:
  explicit ScanVjp(const RuleInput& in)
      : in_(in),
        info_(std::get<ir::ScanInfo>(in.node().attributes)),
        carries_(static_cast<size_t>(info_.carries)),
        xs_(info_.x_axes.size()),
        ys_(in.results.size() - carries_) {}

  Values run() {
    trace_joint();
    collect_needs();
    extend_forward();
    return backward();
  }

 private:
  bool is_float_carry(size_t i) const { return is_float(in_.operands[i].dtype()); }

  void trace_joint() {
    const Graph& body = *in_.node().regions[0];
    Values parameters;
    for (const int32_t id : body.parameters())
      parameters.push_back(joint_.parameter(body.type_of(id)));
    const Values outputs = ir::inline_graph(body, joint_, parameters);
    forward_nodes_ = joint_.nodes().size();
    forward_outputs_ = outputs;
    Values cotangents(outputs.size()), wrt;
    for (size_t i = 0; i < carries_; ++i) {
      if (!is_float_carry(i)) continue;
      cotangents[i] = joint_.parameter(outputs[i].type());
      carry_cts_.push_back(i);
      wrt.push_back(parameters[i]);
    }
    for (size_t i = 0; i < ys_; ++i) {
      if (!in_.cotangents[carries_ + i]) continue;
      cotangents[carries_ + i] = joint_.parameter(outputs[carries_ + i].type());
      y_cts_.push_back(i);
    }
    for (size_t i = carries_; i < in_.operands.size(); ++i) {
      if (!in_.wanted[i]) continue;
      (i < carries_ + xs_ ? wanted_xs_ : wanted_constants_).push_back(i);
      wrt.push_back(parameters[i]);
    }
    cotangents_ = cotangents;
    gradients_ = sweep(joint_, 0, outputs, cotangents, wrt);
    for (size_t i = 0; i < wrt.size(); ++i) {
      if (!gradients_[i]) gradients_[i] = ir::zeros_like(wrt[i]);
    }
  }

  size_t node_of(int32_t id) const { return static_cast<size_t>(joint_.node_of(id)); }
  bool is_forward(int32_t id) const { return node_of(id) < forward_nodes_; }
  // Position among the body's parameters, or npos.
  size_t parameter_index(int32_t id) const {
    const auto& p = joint_.parameters();
    const auto it = std::find(p.begin(), p.end(), id);
    return it == p.end() ? std::string::npos : static_cast<size_t>(it - p.begin());
  }

  // Follows from constants and loop-invariant inputs alone, by cheap ops: computed again.
  bool is_cheap(int32_t id) {
    const Node& node = joint_.nodes()[node_of(id)];
    if (node.kind == OpKind::kParameter) return parameter_index(id) >= carries_ + xs_;
    if (!node.regions.empty() || node.results.size() != 1) return false;
    if (node.kind > OpKind::kConcatenate) return false;
    return std::all_of(node.operands.begin(), node.operands.end(),
                       [&](int32_t operand) { return is_cheap(operand); });
  }

  void need(int32_t id) {
    if (!is_forward(id) || !needed_.insert(id).second) return;
    const Node& node = joint_.nodes()[node_of(id)];
    if (node.kind == OpKind::kParameter) {
      const size_t index = parameter_index(id);
      if (index < carries_) {
        residuals_.push_back(id);
      } else if (index < carries_ + xs_) {
        again_xs_.push_back(index);
      } else {
        again_constants_.push_back(index);
      }
    } else if (is_cheap(id)) {
      for (const int32_t operand : node.operands) need(operand);
    } else {
      residuals_.push_back(id);
    }
  }

  void collect_needs() {
    live_.assign(joint_.nodes().size(), false);
    for (const Value& g : gradients_) {
      live_[node_of(g.id)] = true;
      need(g.id);
    }
    for (size_t i = joint_.nodes().size(); i-- > forward_nodes_;) {
      if (!live_[i]) continue;
      for (const int32_t id : used_operands(joint_.nodes()[i])) live_[node_of(id)] = true;
    }
    for (size_t i = forward_nodes_; i < joint_.nodes().size(); ++i) {
      if (!live_[i]) continue;
      for (const int32_t id : used_operands(joint_.nodes()[i])) need(id);
    }
  }

  // The forward scan stacks the residuals as further results.
  void extend_forward() {
    auto body = std::make_shared<Graph>();
    Values map(joint_.value_count());
    for (size_t i = 0; i < in_.operands.size(); ++i) {
      const int32_t id = joint_.parameters()[i];
      map[static_cast<size_t>(id)] = body->parameter(joint_.type_of(id));
    }
    for (size_t i = 0; i < forward_nodes_; ++i) {
      const Node& node = joint_.nodes()[i];
      if (node.kind != OpKind::kParameter) clone_node(joint_, node, *body, map);
    }
    for (const Value& v : forward_outputs_) body->outputs.push_back(map[static_cast<size_t>(v.id)]);
    for (const int32_t id : residuals_) body->outputs.push_back(map[static_cast<size_t>(id)]);
    Node& scan = in_.graph.nodes()[in_.node_index];
    scan.regions = {body};
    auto& info = std::get<ir::ScanInfo>(scan.attributes);
    for (const int32_t id : residuals_) {
      info.y_axes.push_back(0);
      ir::Type type = joint_.type_of(id);
      type.shape.insert(type.shape.begin(), info.length);
      stacked_.push_back(in_.graph.add_result(static_cast<int32_t>(in_.node_index), type));
    }
  }

  // Operands: {carry cotangents, sums of constant gradients}, {y cotangents, residuals, xs},
  // {constants}; results: {carry gradients, constant gradients}, {x gradients}.
  Values backward() {
    auto body = std::make_shared<Graph>();
    Values map(joint_.value_count());
    ir::ScanInfo info;
    info.length = info_.length;
    info.reverse = !info_.reverse;
    Values operands;
    const auto enter = [&](Value outer, const ir::Type& type, int32_t id) {
      operands.push_back(outer);
      const Value p = body->parameter(type);
      if (id >= 0) map[static_cast<size_t>(id)] = p;
      return p;
    };
    for (const size_t i : carry_cts_) {
      const Value given = in_.cotangents[i];
      enter(given ? given : ir::zeros_like(in_.results[i]), in_.operands[i].type(),
            cotangents_[i].id);
    }
    Values sums;
    for (const size_t i : wanted_constants_) {
      sums.push_back(enter(ir::zeros_like(in_.operands[i]), in_.operands[i].type(), -1));
    }
    info.carries = static_cast<int64_t>(operands.size());
    for (const size_t i : y_cts_) {
      info.x_axes.push_back(info_.y_axes[i]);
      const Value inner = cotangents_[carries_ + i];
      enter(in_.cotangents[carries_ + i], inner.type(), inner.id);
    }
    for (size_t i = 0; i < residuals_.size(); ++i) {
      info.x_axes.push_back(0);
      enter(stacked_[i], joint_.type_of(residuals_[i]), residuals_[i]);
    }
    for (const size_t i : again_xs_) {
      info.x_axes.push_back(info_.x_axes[i - carries_]);
      const int32_t id = joint_.parameters()[i];
      enter(in_.operands[i], joint_.type_of(id), id);
    }
    for (const size_t i : again_constants_) {
      enter(in_.operands[i], in_.operands[i].type(), joint_.parameters()[i]);
    }
    clone_backward(*body, map);
    return emit_backward(body, map, sums, operands, info);
  }

  void clone_backward(Graph& body, Values& map) {
    for (size_t i = 0; i < joint_.nodes().size(); ++i) {
      const Node& node = joint_.nodes()[i];
      if (node.kind == OpKind::kParameter) continue;
      const int32_t first = node.results[0];
      const bool again =
          i < forward_nodes_ && needed_.count(first) != 0 && !map[static_cast<size_t>(first)];
      if (!again && !(i >= forward_nodes_ && live_[i])) continue;
      if (node.kind == OpKind::kName) {
        map[static_cast<size_t>(first)] = map[static_cast<size_t>(used_operands(node)[0])];
      } else {
        clone_node(joint_, node, body, map);
      }
    }
  }

  Values emit_backward(const std::shared_ptr<Graph>& body, const Values& map, const Values& sums,
                       const Values& operands, ir::ScanInfo info) {
    size_t g = 0;
    const auto next = [&] { return map[static_cast<size_t>(gradients_[g++].id)]; };
    Values x_gradients;
    for (size_t i = 0; i < carry_cts_.size(); ++i) body->outputs.push_back(next());
    for (size_t i = 0; i < wanted_xs_.size(); ++i) x_gradients.push_back(next());
    for (const Value& sum : sums) body->outputs.push_back(accumulate(sum, next()));
    std::vector<ir::Type> types;
    for (const Value& v : body->outputs) types.push_back(v.type());
    for (size_t i = 0; i < x_gradients.size(); ++i) {
      const size_t operand = wanted_xs_[i];
      info.y_axes.push_back(info_.x_axes[operand - carries_]);
      body->outputs.push_back(x_gradients[i]);
      types.push_back(in_.operands[operand].type());
    }
    const Values results = in_.graph.add(OpKind::kScan, operands, std::move(info), std::move(types),
                                         {body}, in_.node().site);
    Values out(in_.operands.size());
    size_t r = 0;
    for (const size_t i : carry_cts_) out[i] = results[r++];
    for (const size_t i : wanted_constants_) out[i] = results[r++];
    for (const size_t i : wanted_xs_) out[i] = results[r++];
    return out;
  }

  const RuleInput& in_;
  const ir::ScanInfo info_;
  const size_t carries_, xs_, ys_;
  Graph joint_;
  size_t forward_nodes_ = 0;
  Values forward_outputs_, cotangents_, gradients_, stacked_;
  std::vector<size_t> carry_cts_, y_cts_, wanted_xs_, wanted_constants_, again_xs_,
      again_constants_;
  std::vector<int32_t> residuals_;
  std::vector<bool> live_;
  std::set<int32_t> needed_;
};

}  // namespace

Values scan_rule(const RuleInput& in) { return ScanVjp(in).run(); }

Values remat_rule(const RuleInput& in) {
  const std::vector<std::string> saved = std::get<ir::RematInfo>(in.node().attributes).saved;
  const std::shared_ptr<Graph> body = in.node().regions[0];
  auto extended = std::make_shared<Graph>();
  Values parameters;
  for (const int32_t id : body->parameters()) {
    parameters.push_back(extended->parameter(body->type_of(id)));
  }
  std::vector<int32_t> tagged;  // name nodes, by index
  for (size_t i = 0; i < body->nodes().size(); ++i) {
    const Node& node = body->nodes()[i];
    if (node.kind != OpKind::kName) continue;
    const std::string& tag = std::get<ir::Label>(node.attributes).text;
    if (std::find(saved.begin(), saved.end(), tag) != saved.end()) {
      tagged.push_back(static_cast<int32_t>(i));
    }
  }
  Values kept;
  if (!tagged.empty()) {
    // The same body with the tagged values as further outputs.
    Values copies(body->value_count());
    for (size_t i = 0; i < parameters.size(); ++i) {
      copies[static_cast<size_t>(body->parameters()[i])] = parameters[i];
    }
    for (const Node& node : body->nodes()) {
      if (node.kind != OpKind::kParameter) clone_node(*body, node, *extended, copies);
    }
    for (const Value& v : body->outputs) {
      extended->outputs.push_back(copies[static_cast<size_t>(v.id)]);
    }
    for (const int32_t index : tagged) {
      const Node& node = body->nodes()[static_cast<size_t>(index)];
      extended->outputs.push_back(copies[static_cast<size_t>(node.results[0])]);
      kept.push_back(
          in.graph.add_result(static_cast<int32_t>(in.node_index), body->type_of(node.results[0])));
    }
    in.graph.nodes()[in.node_index].regions = {extended};
  }
  // The barrier keeps the second run apart from the first (no CSE, also of what follows from saved
  // values), and after the cotangent's arrival.
  Values guarded = in.operands;
  guarded.insert(guarded.end(), kept.begin(), kept.end());
  for (const Value& c : in.cotangents) {
    if (c) guarded.push_back(c);
  }
  guarded = ir::barrier(guarded);
  const Values arguments(guarded.begin(), guarded.begin() + static_cast<long>(in.operands.size()));
  size_t next = in.operands.size();
  Values substitutions(body->value_count());
  for (const int32_t index : tagged) {
    const Node& node = body->nodes()[static_cast<size_t>(index)];
    substitutions[static_cast<size_t>(node.operands[0])] = guarded[next++];
  }
  Values cotangents = in.cotangents;
  for (Value& c : cotangents) {
    if (c) c = guarded[next++];
  }
  const size_t first = in.graph.nodes().size();
  const Values outputs = ir::inline_graph(*body, in.graph, arguments, substitutions);
  cotangents.resize(outputs.size());
  Values wrt;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (in.wanted[i]) wrt.push_back(arguments[i]);
  }
  const Values gradients = sweep(in.graph, first, outputs, cotangents, wrt);
  Values out(in.operands.size());
  size_t g = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    if (in.wanted[i]) out[i] = gradients[g++];
  }
  return out;
}

Values custom_vjp_rule(const RuleInput& in) {
  const ir::CustomVjpRule rule = std::get<ir::CustomVjpInfo>(in.node().attributes).rule;
  return rule(in.operands, in.results, in.cotangents);
}

}  // namespace mt::autodiff
