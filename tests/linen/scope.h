// Flax Linen's functional form, as much as a decoder needs of it: variables live in one ordered
// list outside of the functions; a scope is a path into it. In the first pass (init) functions add
// the variables that they name; later ones (apply) find them there.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "nnx/to_linen.h"
#include "nnx/transforms.h"

namespace mt::linen {

struct Entry {
  std::string collection, path;
  nnx::LinenVariable variable;
  int64_t stack_axis = -1;  // of scanned layers
};

struct Variables {
  std::vector<Entry> entries;       // in the order of their making
  ir::Graph* init_graph = nullptr;  // set: this is the first pass, and variables are made in it
};

class Scope {
 public:
  explicit Scope(Variables& variables, std::string path = "")
      : variables_(variables), path_(std::move(path)) {}

  Scope child(const std::string& name) const {
    return Scope(variables_, path_.empty() ? name : path_ + "/" + name);
  }
  bool is_init() const { return variables_.init_graph != nullptr; }

  // A child in NNX form, through the bridge.
  nnx::Values module(const std::string& name, const nnx::LinenModule& linen,
                     const nnx::LinenModule::Call& call) const {
    const Scope own = child(name);
    if (is_init()) own.make(linen.init());
    nnx::Collections given;
    for (Entry* e : own.entries()) {
      given.at(e->collection)
          .variables.emplace_back(e->path.substr(own.path_.size() + 1), e->variable);
    }
    nnx::LinenResult result = linen.apply(given, {"cache"}, call);
    for (Entry* e : own.entries()) {
      const auto* updated =
          result.updates.find(e->collection, e->path.substr(own.path_.size() + 1));
      if (updated != nullptr) e->variable.value = updated->value;
    }
    return result.values;
  }

  // Those at or below this path.
  std::vector<Entry*> entries() const {
    std::vector<Entry*> out;
    for (Entry& e : variables_.entries) {
      if (path_.empty() || e.path.starts_with(path_ + "/")) out.push_back(&e);
    }
    return out;
  }

 private:
  void make(const nnx::Collections& collections) const {
    for (const nnx::Collection& c : collections.all()) {
      for (const auto& [name, leaf] : c.variables) {
        Entry e{c.name, path_ + "/" + name, leaf, -1};
        e.variable.value = variables_.init_graph->parameter(leaf.type, e.path);
        variables_.entries.push_back(std::move(e));
      }
    }
  }
  Variables& variables_;
  std::string path_;
};

// Gives the entries these values while it lives; what they are then can be kept.
class Rebound {
 public:
  Rebound(std::vector<Entry*> entries, const nnx::Values& values) : entries_(std::move(entries)) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      before_.push_back(entries_[i]->variable.value);
      set(*entries_[i], values[i]);
    }
  }
  ~Rebound() {
    for (size_t i = 0; i < entries_.size(); ++i) set(*entries_[i], before_[i]);
  }
  Rebound(const Rebound&) = delete;
  Rebound& operator=(const Rebound&) = delete;

 private:
  // A layer's slice has another type than the stack.
  static void set(Entry& e, ir::Value value) {
    e.variable.value = value;
    e.variable.type = value.type();
  }
  std::vector<Entry*> entries_;
  nnx::Values before_;
};

inline nnx::Values values_of(const std::vector<Entry*>& entries) {
  nnx::Values out;
  for (const Entry* e : entries) out.push_back(e->variable.value);
  return out;
}

// nn.remat over the variables of a scope; `fn` changes none.
inline ir::Value remat(const Scope& scope, const std::vector<std::string>& saved, ir::Value x,
                       const std::function<ir::Value(ir::Value)>& fn) {
  if (scope.is_init()) return fn(x);
  const std::vector<Entry*> entries = scope.entries();
  nnx::Values arguments = values_of(entries);
  arguments.push_back(x);
  return ir::remat(arguments, saved, [&](const nnx::Values& in) -> nnx::Values {
    const Rebound rebound(entries, in);
    return {fn(in.back())};
  })[0];
}

// nn.scan over `length` layers: variable_axes at `axis`, metadata_params partition name "layers".
inline ir::Value scan(const Scope& scope, int64_t length, int64_t axis, ir::Value x,
                      const std::function<ir::Value(ir::Value, ir::Value index)>& fn) {
  if (scope.is_init()) {
    const ir::Value out = fn(x, ir::full(*x.graph, DType::kS32, {}, 0));
    for (Entry* e : scope.entries()) {
      nnx::LinenVariable& v = e->variable;
      e->stack_axis = std::min(axis, static_cast<int64_t>(v.type.shape.size()));
      v.type.shape.insert(v.type.shape.begin() + e->stack_axis, length);
      v.names.insert(v.names.begin() + e->stack_axis, "layers");
    }
    return out;
  }
  const std::vector<Entry*> entries = scope.entries();
  nnx::Values xs = values_of(entries);
  ir::ScanOptions options;
  options.length = length;
  for (const Entry* e : entries) options.x_axes.push_back(e->stack_axis);
  xs.push_back(ir::iota(*x.graph, DType::kS32, {length}, 0));
  options.x_axes.push_back(0);
  std::vector<size_t> changed;
  const auto body = [&](const nnx::Values& in) -> nnx::Values {
    const nnx::Values layer(in.begin() + 1, in.end() - 1);
    const Rebound rebound(entries, layer);
    nnx::Values out{fn(in[0], in.back())};
    changed.clear();
    options.y_axes.clear();
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i]->variable.value == layer[i]) continue;
      changed.push_back(i);
      options.y_axes.push_back(entries[i]->stack_axis);
      out.push_back(entries[i]->variable.value);
    }
    return out;
  };
  const nnx::Values results = ir::scan({x}, xs, options, body);
  for (size_t i = 0; i < changed.size(); ++i) {
    entries[changed[i]]->variable.value = results[1 + i];
  }
  return results[0];
}

}  // namespace mt::linen
