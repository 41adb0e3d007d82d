#include "nnx/transforms.h"

#include <algorithm>

#include "autodiff/vjp.h"
#include "base/error.h"

namespace mt::nnx {
namespace {

// Runs fn and moves what it sowed into `out` behind its own results.
Values with_intermediates(Module& module, const std::function<Values()>& fn,
                          std::vector<std::string>& paths) {
  Values out = fn();
  paths.clear();
  for (Sown& s : pop_intermediates(module)) {
    paths.push_back(std::move(s.path));
    out.push_back(s.value);
  }
  return out;
}

// Appends the values of variables that are no longer those of `before`; `changed` tells which.
void append_changed(const std::vector<NamedVariable>& vars, const Values& before,
                    std::vector<size_t>& changed, Values& out) {
  changed.clear();
  for (size_t i = 0; i < vars.size(); ++i) {
    if (vars[i].variable->value == before[i]) continue;
    changed.push_back(i);
    out.push_back(vars[i].variable->value);
  }
}

// The last results are new values of variables, those before them are sown again by the module; the
// rest is returned.
Values take_back(Module& module, Values results, const std::vector<std::string>& paths,
                 const std::vector<NamedVariable>& vars, const std::vector<size_t>& changed) {
  const size_t sown = results.size() - changed.size();
  for (size_t i = 0; i < changed.size(); ++i) {
    vars[changed[i]].variable->value = results[sown + i];
  }
  const size_t own = sown - paths.size();
  for (size_t i = 0; i < paths.size(); ++i) module.sow(paths[i], results[own + i]);
  results.resize(own);
  return results;
}

}  // namespace

void stack_layers(Module& module, int64_t length, int64_t axis, const std::string& axis_name) {
  for (auto& [path, v] : variables(module)) {
    MT_CHECK(v->stack_axis < 0);
    const int64_t at = std::min(axis, static_cast<int64_t>(v->type.shape.size()));
    v->type.shape.insert(v->type.shape.begin() + at, length);
    v->axes.resize(v->type.shape.size() - 1);
    v->axes.insert(v->axes.begin() + at, axis_name);
    v->stack_axis = at;
    v->stack_length = length;
  }
}

Values scan(Module& module, int64_t length, const Values& carry,
            const std::function<Values(const Values&, ir::Value)>& fn) {
  const auto vars = variables(module);
  ir::Graph& graph = ir::graph_of(carry);
  Values xs;
  ir::ScanOptions options;
  options.length = length;
  for (const auto& [path, v] : vars) {
    MT_CHECK(v->stack_axis >= 0 && v->stack_length == length);
    xs.push_back(v->value);
    options.x_axes.push_back(v->stack_axis);
  }
  xs.push_back(ir::iota(graph, DType::kS32, {length}, 0));
  options.x_axes.push_back(0);
  std::vector<std::string> paths;
  std::vector<size_t> changed;
  const auto body = [&](const Values& in) {
    const auto at = in.begin() + static_cast<long>(carry.size());
    const Values layer(at, in.end() - 1);
    const Binding binding(vars, layer);
    Values out = with_intermediates(
        module, [&] { return fn(Values(in.begin(), at), in.back()); }, paths);
    options.y_axes.assign(out.size() - std::min(out.size(), carry.size()), 0);
    append_changed(vars, layer, changed, out);
    for (const size_t i : changed) options.y_axes.push_back(vars[i].variable->stack_axis);
    return out;
  };
  return take_back(module, ir::scan(carry, xs, options, body), paths, vars, changed);
}

Values remat(Module& module, const std::vector<std::string>& saved, const Values& inputs,
             const std::function<Values(const Values&)>& fn) {
  const auto vars = variables(module);
  Values arguments;
  for (const auto& [path, v] : vars) arguments.push_back(v->value);
  arguments.insert(arguments.end(), inputs.begin(), inputs.end());
  std::vector<std::string> paths;
  std::vector<size_t> changed;
  const auto body = [&](const Values& in) {
    const Binding binding(vars, in);
    const Values own(in.begin() + static_cast<long>(vars.size()), in.end());
    Values out = with_intermediates(
        module, [&] { return fn(own); }, paths);
    append_changed(vars, in, changed, out);
    return out;
  };
  return take_back(module, ir::remat(arguments, saved, body), paths, vars, changed);
}

ValueAndGrad value_and_grad(Module& module, const Filter& wrt, const std::function<Values()>& fn,
                            ir::Graph* region) {
  ValueAndGrad out;
  out.gradients = state(module, wrt);
  Values values = out.gradients.values();
  if (region != nullptr) {
    for (ir::Value& v : values) v = region->import(v);
  }
  std::vector<NamedVariable> chosen;
  for (NamedVariable& v : variables(module)) {
    if (wrt(v.path, *v.variable)) chosen.push_back(std::move(v));
  }
  Values results;
  {
    const Binding binding(chosen, values);
    results = fn();
  }
  out.value = results[0];
  out.aux.assign(results.begin() + 1, results.end());
  const Values gradients = autodiff::grad(out.value, values);
  for (size_t i = 0; i < gradients.size(); ++i) {
    out.gradients.entries[i].variable.value = gradients[i];
  }
  return out;
}

State grad(Module& module, const Filter& wrt, const std::function<Values()>& fn,
           ir::Graph* region) {
  return value_and_grad(module, wrt, fn, region).gradients;
}

}  // namespace mt::nnx
