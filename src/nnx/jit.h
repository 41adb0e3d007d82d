// jit in three steps, as jax.jit: traced -> lowered -> compiled. A program takes the variables of
// some modules and further inputs; variables whose value the function changes are updated in place
// on the device (their old arrays are donated).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/stablehlo.h"
#include "nnx/module.h"
#include "nnx/partition.h"
#include "pjrt/executable.h"

namespace mt::nnx {

struct Input {
  std::string name;
  ir::Type type;
  sharding::PartitionSpec spec;  // empty: replicated
};

struct Output {
  ir::Value value;
  std::optional<sharding::PartitionSpec> spec;  // default: replicated
  Output(ir::Value v) : value(v) {}
  Output(ir::Value v, sharding::PartitionSpec s) : value(v), spec(std::move(s)) {}
};

// Gets the program's graph and the inputs' values; module variables carry their values.
using Function =
    std::function<std::vector<Output>(ir::Graph& graph, const std::vector<ir::Value>& in)>;

class Compiled {
 public:
  // Runs with the modules' arrays and these inputs; returns at once (see pjrt::Array::await).
  // Changed variables get their new arrays.
  std::vector<pjrt::Array> operator()(std::span<pjrt::Array* const> inputs);
  std::vector<pjrt::Array> operator()(const std::vector<Tensor>& inputs);
  const pjrt::Executable& executable() const { return executable_; }
  const std::vector<pjrt::ArrayTypeRef>& input_types() const { return input_types_; }
  const std::shared_ptr<const pjrt::Client>& client() const { return client_; }

 private:
  friend class Lowered;
  Compiled(std::shared_ptr<const pjrt::Client> client, pjrt::Executable executable)
      : client_(std::move(client)), executable_(std::move(executable)) {}
  std::shared_ptr<const pjrt::Client> client_;
  pjrt::Executable executable_;
  std::vector<Variable*> variables_;  // in argument order
  std::vector<size_t> changed_;       // results 0..: which of variables_
  std::vector<int64_t> donated_;
  std::vector<pjrt::ArrayTypeRef> input_types_, result_types_;
};

class Lowered {
 public:
  const std::string& text() const { return text_; }  // StableHLO
  Compiled compile(std::shared_ptr<const pjrt::Client> client, pjrt::CompileCache* cache = nullptr,
                   pjrt::CompileOptions options = {}) const;

 private:
  friend class Traced;
  std::string text_;
  std::shared_ptr<const class Traced> traced_;
};

class Traced : public std::enable_shared_from_this<Traced> {
 public:
  // Modules are traced in order; a variable's parameter is named by its path. They must outlive the
  // compiled program. With donate = false, old arrays stay valid.
  static std::shared_ptr<const Traced> trace(std::string name, const std::vector<Module*>& modules,
                                             const std::vector<Input>& inputs,
                                             const Partitioner& partitioner, const Function& fn,
                                             bool donate = true);
  const ir::Graph& graph() const { return *graph_; }  // optimised
  Lowered lower() const;
  // Bytes of arguments on each device: variables and inputs, shard by shard.
  int64_t argument_bytes() const;

 private:
  friend class Lowered;
  std::string name_;
  Partitioner partitioner_;
  std::shared_ptr<ir::Graph> graph_;
  std::vector<Variable*> variables_;
  std::vector<size_t> changed_;
  std::vector<pjrt::ArrayTypeRef> variable_types_, input_types_, result_types_;
  bool donate_ = true;
};

// trace + lower + compile.
Compiled jit(std::string name, std::shared_ptr<const pjrt::Client> client,
             const std::vector<Module*>& modules, const std::vector<Input>& inputs,
             const Partitioner& partitioner, const Function& fn,
             pjrt::CompileCache* cache = nullptr);

// The type of a variable's array on a mesh. Throws kConfig naming the variable where a dimension
// does not divide.
pjrt::ArrayTypeRef array_type(const std::string& path, const Variable& variable,
                              const Partitioner& partitioner);

}  // namespace mt::nnx
