// The bridge to Flax Linen's form (flax.nnx.bridge.ToLinen): a module as a pair of functions, init
// and apply, over collections of named variables that live outside of it. It carried MaxText from
// Linen to NNX one module at a time; here it lets both forms of a model meet in one program.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nnx/module.h"

namespace mt::nnx {

// A leaf of a collection. With `names` set it is Linen's LogicallyPartitioned box.
struct LinenVariable {
  ir::Type type;
  std::vector<std::string> names;  // a logical axis for each dimension; empty: not partitioned
  Initializer init;
  ir::Value value;  // while a program is traced
};

struct Collection {
  std::string name;                                              // "params", "cache", ...
  std::vector<std::pair<std::string, LinenVariable>> variables;  // path within the module, in order
};

class Collections {
 public:
  // The collection of that name, made empty if there is none.
  Collection& at(std::string_view name);
  const Collection* find(std::string_view name) const;
  LinenVariable* find(std::string_view collection, std::string_view path);
  const LinenVariable* find(std::string_view collection, std::string_view path) const;
  std::vector<Collection>& all() { return collections_; }
  const std::vector<Collection>& all() const { return collections_; }

 private:
  std::vector<Collection> collections_;
};

// Param -> "params", BatchStat -> "batch_stats", Cache -> "cache", Intermediate -> "intermediates",
// OptState -> "opt_state"; "" for RngState, which Linen keeps outside of variables.
std::string_view collection_of(VariableKind kind);

// Makes a leaf of a variable: flax's base_metadata_fn.
using MetadataHook = std::function<LinenVariable(const Variable& variable)>;
// The leaf without axis names, and the one with them (MaxText's variable_to_logically_partitioned).
LinenVariable plain_leaf(const Variable& variable);
LinenVariable variable_to_logically_partitioned(const Variable& variable);

struct LinenResult {
  std::vector<ir::Value> values;
  Collections updates;  // the collections asked for, as they are afterwards
};

class LinenModule {
 public:
  using Factory = std::function<std::unique_ptr<Module>()>;
  using Call = std::function<std::vector<ir::Value>(Module& module)>;

  LinenModule(Factory factory, MetadataHook hook)
      : make_(std::move(factory)), hook_(std::move(hook)) {}

  // Every variable's type, axes and initialiser; nothing is computed.
  Collections init() const;
  // Makes the module anew, gives it the values of `variables`, and runs `call` on it. Collections
  // of `mutable_names` come back with their new values, "intermediates" with what the module sowed.
  // Throws kConfig, naming the variable, for one that is missing, of another type, without a value,
  // or changed though its collection isn't mutable.
  LinenResult apply(const Collections& variables, const std::vector<std::string>& mutable_names,
                    const Call& call) const;

 private:
  Factory make_;
  MetadataHook hook_;
};

// flax.nnx.bridge.to_linen: M(args...) is made for each init and apply. The arguments are copied.
template <typename M, typename... Args>
LinenModule to_linen(MetadataHook hook, Args... args) {
  return LinenModule([args...] { return std::make_unique<M>(args...); }, std::move(hook));
}

}  // namespace mt::nnx
