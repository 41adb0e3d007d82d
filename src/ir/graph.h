// A traced program: nodes in the order they were made, values named by id. A value knows its graph,
// so ops need no global state. A graph may have a parent: an op inside a region that uses a value
// of an enclosing graph captures it (the region gains a parameter), so every region is closed.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/attributes.h"
#include "ir/op.h"
#include "ir/type.h"

namespace mt::ir {

class Graph;

struct Value {
  Graph* graph = nullptr;
  int32_t id = -1;

  explicit operator bool() const { return graph != nullptr; }
  bool operator==(const Value&) const = default;
  const Type& type() const;
  DType dtype() const { return type().dtype; }
  const Shape& shape() const { return type().shape; }
  int64_t rank() const { return static_cast<int64_t>(shape().size()); }
  int64_t dim(int64_t axis) const;  // negative counts from the end
};

// Where in the C++ source an op was called; a default argument of every op function.
struct Site {
  const char* file = "";
  int line = 0;
};

struct Node {
  OpKind kind = OpKind::kConstant;
  std::vector<int32_t> operands;  // value ids of the same graph
  std::vector<int32_t> results;   // value ids
  Attributes attributes;
  std::vector<std::shared_ptr<Graph>> regions;  // closed; immutable once attached
  std::string path;                             // module path, "decoder/layers_0/mlp"
  Site site;
};

class Graph {
 public:
  Graph() = default;
  explicit Graph(Graph* parent);
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  Value parameter(Type type, std::string name = "");
  // Appends a node; operands must be of this graph or of an enclosing one (then captured).
  std::vector<Value> add(OpKind kind, const std::vector<Value>& operands, Attributes attributes,
                         std::vector<Type> results,
                         std::vector<std::shared_ptr<Graph>> regions = {}, Site site = {});
  // A further result of an existing node (scan and remat gain residuals during autodiff).
  Value add_result(int32_t node, Type type);

  // `value` as seen here: itself, or the parameter through which it is captured.
  Value import(Value value);

  std::deque<Node>& nodes() { return nodes_; }
  const std::deque<Node>& nodes() const { return nodes_; }
  const std::vector<int32_t>& parameters() const { return parameters_; }
  const std::vector<Value>& captured() const {
    return captured_;
  }  // values of the parent, in the
     // order of the last parameters
  std::vector<Value> outputs;

  const Type& type_of(int32_t value) const { return values_[static_cast<size_t>(value)].type; }
  int32_t node_of(int32_t value) const { return values_[static_cast<size_t>(value)].node; }
  const Node& definition(int32_t value) const {
    return nodes_[static_cast<size_t>(node_of(value))];
  }
  size_t value_count() const { return values_.size(); }
  Value value(int32_t id) { return {this, id}; }
  int depth() const { return depth_; }
  bool encloses(const Graph* inner) const;  // itself included

  // The module path; use Scope.
  std::string path;

 private:
  struct ValueInfo {
    Type type;
    int32_t node;
  };
  Graph* parent_ = nullptr;
  int depth_ = 0;
  std::deque<Node> nodes_;
  std::deque<ValueInfo> values_;
  std::vector<int32_t> parameters_;
  std::vector<Value> captured_;
  std::vector<int32_t> captured_as_;
};

// Appends a name to the graph's module path while it lives.
class Scope {
 public:
  Scope(Graph& graph, std::string_view name);
  ~Scope() { graph_.path.resize(length_); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Graph& graph_;
  size_t length_;
};

// The innermost graph among the values. Throws kShape if two of them don't enclose one another.
Graph& graph_of(const std::vector<Value>& values);

// Clones `body` into `destination`, its parameters replaced by `arguments`; returns its outputs.
// `substitutions[value id of body]`, where set, replaces that value: users see a name node of two
// operands {clone, substitute} whose value is the substitute and whose gradient goes to the clone.
std::vector<Value> inline_graph(const Graph& body, Graph& destination,
                                const std::vector<Value>& arguments,
                                const std::vector<Value>& substitutions = {});

// Throws kShape: "[op] message (in PATH, FILE:LINE)".
[[noreturn]] void shape_error(OpKind kind, const Graph* graph, Site site,
                              const std::string& message);

}  // namespace mt::ir
