// Runs graphs on host tensors through the real CPU plugin. One client a device count in a process.
#pragma once

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "ir/passes.h"
#include "ir/stablehlo.h"
#include "pjrt/array.h"
#include "pjrt/client.h"
#include "pjrt/executable.h"

namespace mt::testing {

inline std::shared_ptr<pjrt::Client> client(int64_t devices = 1) {
  static std::map<int64_t, std::shared_ptr<pjrt::Client>> clients;
  std::shared_ptr<pjrt::Client>& slot = clients[devices];
  if (slot == nullptr) {
    ::setenv("MAXTEXT_DEPS", MT_DEPS, 1);
    slot = pjrt::Client::create({.platform = "cpu", .device_count = devices});
  }
  return slot;
}

// A compiled graph: optimise, print, compile; then call it with host tensors.
class Program {
 public:
  explicit Program(const ir::Graph& graph, const ir::ProgramSpec& spec = {})
      : client_(client(spec.mesh.device_count())),
        executable_(pjrt::Executable::compile(
            client_, ir::to_stablehlo(*ir::optimise(graph), spec),
            pjrt::CompileOptions{.num_partitions = spec.mesh.device_count()})) {
    for (size_t i = 0; i < graph.parameters().size(); ++i) {
      arguments_.push_back(
          array_type(graph.type_of(graph.parameters()[i]), spec, spec.arguments, i));
    }
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      results_.push_back(array_type(graph.outputs[i].type(), spec, spec.results, i));
    }
  }

  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const {
    MT_CHECK(inputs.size() == arguments_.size());
    std::vector<pjrt::Array> arrays;
    std::vector<pjrt::Array*> pointers;
    arrays.reserve(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      arrays.push_back(pjrt::Array::from_host(client_, inputs[i], arguments_[i]));
      pointers.push_back(&arrays.back());
    }
    std::vector<Tensor> out;
    for (const pjrt::Array& a : executable_.execute(pointers, results_)) out.push_back(a.to_host());
    return out;
  }

  const pjrt::Executable& executable() const { return executable_; }

 private:
  static pjrt::ArrayTypeRef array_type(
      const ir::Type& type, const ir::ProgramSpec& program,
      const std::vector<std::optional<sharding::PartitionSpec>>& specs, size_t i) {
    sharding::PartitionSpec spec{std::vector<std::vector<std::string>>(type.shape.size())};
    if (i < specs.size() && specs[i]) spec = *specs[i];
    return pjrt::array_type(type.dtype, type.shape, program.mesh, spec);
  }

  std::shared_ptr<pjrt::Client> client_;
  pjrt::Executable executable_;
  std::vector<pjrt::ArrayTypeRef> arguments_, results_;
};

inline std::vector<Tensor> run(const ir::Graph& graph, const std::vector<Tensor>& inputs = {},
                               const ir::ProgramSpec& spec = {}) {
  return Program(graph, spec)(inputs);
}

template <typename T>
std::vector<T> values_of(const Tensor& tensor) {
  const auto data = tensor.data<T>();
  return {data.begin(), data.end()};
}

// The error that `body` throws; empty if it throws none.
template <typename F>
std::string error_of(const F& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace mt::testing
