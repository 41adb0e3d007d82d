// Modules: a tree of variables. A module owns its children and lists its fields once, in visit();
// names, init, split/merge, scan stacking, sharding, checkpoints and tables all derive from that.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nnx/variable.h"

namespace mt::nnx {

class Module;

class Visitor {
 public:
  virtual ~Visitor() = default;
  virtual void variable(std::string_view name, Variable& v) = 0;
  virtual void module(std::string_view name, Module& m) = 0;

  void operator()(std::string_view name, Variable& v) { variable(name, v); }
  void operator()(std::string_view name, Module& m) { module(name, m); }
  template <typename M>
  void operator()(std::string_view name, const std::unique_ptr<M>& m) {
    if (m) module(name, *m);
  }
  // name_0, name_1, ...
  template <typename M>
  void operator()(std::string_view name, const std::vector<std::unique_ptr<M>>& list) {
    for (size_t i = 0; i < list.size(); ++i) {
      module(std::string(name) + "_" + std::to_string(i), *list[i]);
    }
  }
};

struct Sown {
  std::string path;
  ir::Value value;
};

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual void visit(Visitor& v) = 0;

  // Leaves an intermediate value beside the module; pop_intermediates() collects it.
  void sow(std::string name, ir::Value value) { sown_.push_back({std::move(name), value}); }

 private:
  friend std::vector<Sown> pop_intermediates(Module& root);
  std::vector<Sown> sown_;
};

struct NamedVariable {
  std::string path;  // "decoder/layers/layers_0/mlp/wi_0/kernel"
  Variable* variable;
};

// Every variable of the tree in the order of visit(), with its path.
std::vector<NamedVariable> variables(Module& root);
// "decoder/layers" -> module, in visiting order, the root first with the path "".
std::vector<std::pair<std::string, Module*>> modules(Module& root);
// What sow() left in the tree, with paths; the tree holds none afterwards.
std::vector<Sown> pop_intermediates(Module& root);

// Puts values into variables while it lives, and what was there before back at the end.
class Binding {
 public:
  Binding(const std::vector<NamedVariable>& variables, const std::vector<ir::Value>& values);
  ~Binding();
  Binding(const Binding&) = delete;
  Binding& operator=(const Binding&) = delete;

 private:
  std::vector<std::pair<Variable*, ir::Value>> saved_;
};

}  // namespace mt::nnx
