#include "nnx/init.h"

#include <fmt/format.h>

#include <map>

#include "base/random.h"
#include "ir/passes.h"
#include "ir/random.h"
#include "nnx/jit.h"
#include "nnx/rngs.h"

namespace mt::nnx {
namespace {

// One program a distinct (initialiser, shape, layout): keys[n, 2] -> the variable.
pjrt::Executable compile_initializer(const Variable& v, const pjrt::ArrayType& type,
                                     std::shared_ptr<const pjrt::Client> client,
                                     pjrt::CompileCache* cache) {
  ir::Graph graph;
  const int64_t n = v.stack_axis >= 0 ? v.stack_length : 1;
  const ir::Value keys = graph.parameter({DType::kU32, {n, 2}}, "keys");
  ir::Value value;
  if (v.init.make) {
    value = v.init.make(keys, v.layer_shape(), v.type.dtype);
    std::vector<int64_t> permutation;
    for (int64_t i = 1; i < value.rank(); ++i) permutation.push_back(i);
    permutation.insert(permutation.begin() + std::max<int64_t>(v.stack_axis, 0), 0);
    value = ir::reshape(ir::transpose(value, permutation), v.type.shape);
  } else {
    value = ir::full(graph, v.type.dtype, v.type.shape, 0);
  }
  graph.outputs = {value};
  ir::ProgramSpec spec;
  spec.name = "init";
  spec.mesh = type.mesh;
  spec.arguments = {sharding::PartitionSpec{{{}, {}}}};
  spec.results = {type.spec};
  spec.locations = false;
  pjrt::CompileOptions options;
  options.num_partitions = type.mesh.device_count();
  return pjrt::Executable::compile(std::move(client), ir::to_stablehlo(*ir::optimise(graph), spec),
                                   options, cache);
}

}  // namespace

std::string default_logical_name(const std::string& path, int64_t layer) {
  return layer < 0 ? path : fmt::format("{}[{}]", path, layer);
}

void initialize(Module& module, std::shared_ptr<const pjrt::Client> client,
                const Partitioner& partitioner, uint64_t seed, const LogicalName& logical_name,
                pjrt::CompileCache* cache) {
  std::map<std::string, pjrt::Executable> programs;
  const RandomKey root = random_key(seed);
  for (const auto& [path, v] : variables(module)) {
    if (v->array != nullptr) continue;
    const pjrt::ArrayTypeRef type = array_type(path, *v, partitioner);
    const std::string key =
        fmt::format("{} {} {} {} {}", v->init.make ? v->init.label : "zeros", to_string(v->type),
                    v->stack_axis, to_string(type->spec), v->stack_length);
    auto it = programs.find(key);
    if (it == programs.end()) {
      it = programs.emplace(key, compile_initializer(*v, *type, client, cache)).first;
    }
    std::vector<uint32_t> keys;
    const bool stacked = v->stack_axis >= 0;
    for (int64_t i = 0; i < (stacked ? v->stack_length : 1); ++i) {
      const RandomKey k = fold_in(root, name_hash(logical_name(path, stacked ? i : -1)));
      keys.insert(keys.end(), k.begin(), k.end());
    }
    const auto n = static_cast<int64_t>(keys.size() / 2);
    pjrt::Array input =
        pjrt::Array::from_host(client, Tensor::of<uint32_t>(DType::kU32, {n, 2}, keys),
                               pjrt::array_type(DType::kU32, {n, 2}, partitioner.mesh, {{{}, {}}}));
    pjrt::Array* arguments[] = {&input};
    const pjrt::ArrayTypeRef results[] = {type};
    v->array = std::make_shared<pjrt::Array>(std::move(it->second.execute(arguments, results)[0]));
  }
}

}  // namespace mt::nnx
