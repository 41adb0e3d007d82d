#include "nnx/jit.h"

#include "base/error.h"
#include "ir/passes.h"

namespace mt::nnx {
namespace {

sharding::PartitionSpec whole(size_t rank) { return {std::vector<std::vector<std::string>>(rank)}; }

}  // namespace

pjrt::ArrayTypeRef array_type(const std::string& path, const Variable& variable,
                              const Partitioner& partitioner) {
  std::vector<std::string> axes = variable.axes;
  axes.resize(variable.type.shape.size());
  const sharding::PartitionSpec spec = partitioner.spec(axes);
  const Shape& shape = variable.type.shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t n = sharding::pieces(partitioner.mesh, spec, i);
    if (shape[i] % n == 0) continue;
    std::string mesh_axes;
    for (const std::string& a : spec.dims[i]) mesh_axes += (mesh_axes.empty() ? "" : "*") + a;
    throw fail(ErrorKind::kConfig,
               "{}: axis {} has size {}, which is not divisible by mesh axis {} of size {}", path,
               axes[i], shape[i], mesh_axes, n);
  }
  return pjrt::array_type(variable.type.dtype, shape, partitioner.mesh, spec);
}

std::shared_ptr<const Traced> Traced::trace(std::string name, const std::vector<Module*>& modules,
                                            const std::vector<Input>& inputs,
                                            const Partitioner& partitioner, const Function& fn,
                                            bool donate) {
  auto traced = std::make_shared<Traced>();
  traced->name_ = std::move(name);
  traced->partitioner_ = partitioner;
  traced->donate_ = donate;
  ir::Graph graph;
  std::vector<NamedVariable> vars;
  std::vector<ir::Value> before;
  for (Module* m : modules) {
    for (NamedVariable& v : variables(*m)) vars.push_back(std::move(v));
  }
  for (const auto& [path, v] : vars) {
    before.push_back(graph.parameter(v->type, path));
    traced->variables_.push_back(v);
    traced->variable_types_.push_back(array_type(path, *v, partitioner));
  }
  std::vector<ir::Value> in;
  for (const Input& input : inputs) {
    in.push_back(graph.parameter(input.type, input.name));
    traced->input_types_.push_back(
        pjrt::array_type(input.type.dtype, input.type.shape, partitioner.mesh,
                         input.spec.dims.empty() ? whole(input.type.shape.size()) : input.spec));
    sharding::shard_shape(partitioner.mesh, traced->input_types_.back()->spec, input.type.shape);
  }
  const Binding binding(vars, before);
  const std::vector<Output> outputs = fn(graph, in);
  for (size_t i = 0; i < vars.size(); ++i) {
    const ir::Value after = vars[i].variable->value;
    if (after == before[i]) continue;
    if (after.type() != before[i].type()) {
      throw fail(ErrorKind::kShape, "{} enters the program as {} and leaves it as {}", vars[i].path,
                 to_string(before[i].type()), to_string(after.type()));
    }
    traced->changed_.push_back(i);
    graph.outputs.push_back(after);
    traced->result_types_.push_back(traced->variable_types_[i]);
  }
  for (const Output& o : outputs) {
    graph.outputs.push_back(o.value);
    traced->result_types_.push_back(
        pjrt::array_type(o.value.dtype(), o.value.shape(), partitioner.mesh,
                         o.spec ? *o.spec : whole(o.value.shape().size())));
  }
  traced->graph_ = ir::suit_products(*ir::optimise(graph), partitioner.narrow_products);
  return traced;
}

Lowered Traced::lower() const {
  ir::ProgramSpec spec;
  spec.name = name_;
  spec.mesh = partitioner_.mesh;
  for (const auto* list : {&variable_types_, &input_types_}) {
    for (const auto& type : *list) spec.arguments.emplace_back(type->spec);
  }
  for (const auto& type : result_types_) spec.results.emplace_back(type->spec);
  spec.donated.assign(spec.arguments.size(), -1);
  if (donate_) {
    for (size_t r = 0; r < changed_.size(); ++r)
      spec.donated[changed_[r]] = static_cast<int64_t>(r);
  }
  Lowered out;
  out.text_ = ir::to_stablehlo(*graph_, spec);
  out.traced_ = shared_from_this();
  return out;
}

int64_t Traced::argument_bytes() const {
  int64_t bytes = 0;
  for (const auto* list : {&variable_types_, &input_types_}) {
    for (const auto& type : *list)
      bytes += element_count(type->shard_shape()) * byte_size(type->dtype);
  }
  return bytes;
}

Compiled Lowered::compile(std::shared_ptr<const pjrt::Client> client, pjrt::CompileCache* cache,
                          pjrt::CompileOptions options) const {
  options.num_partitions = traced_->partitioner_.mesh.device_count();
  Compiled out(client, pjrt::Executable::compile(client, text_, options, cache));
  out.variables_ = traced_->variables_;
  out.changed_ = traced_->changed_;
  if (traced_->donate_) out.donated_.assign(traced_->changed_.begin(), traced_->changed_.end());
  out.input_types_ = traced_->input_types_;
  out.result_types_ = traced_->result_types_;
  return out;
}

std::vector<pjrt::Array> Compiled::operator()(std::span<pjrt::Array* const> inputs) {
  std::vector<pjrt::Array*> arguments;
  for (Variable* v : variables_) {
    MT_CHECK(v->array != nullptr);
    arguments.push_back(v->array.get());
  }
  arguments.insert(arguments.end(), inputs.begin(), inputs.end());
  std::vector<pjrt::Array> results = executable_.execute(arguments, result_types_, donated_);
  for (size_t i = 0; i < changed_.size(); ++i) {
    variables_[changed_[i]]->array = std::make_shared<pjrt::Array>(std::move(results[i]));
  }
  results.erase(results.begin(), results.begin() + static_cast<long>(changed_.size()));
  return results;
}

std::vector<pjrt::Array> Compiled::operator()(const std::vector<Tensor>& inputs) {
  MT_CHECK(inputs.size() == input_types_.size());
  std::vector<pjrt::Array> arrays;
  std::vector<pjrt::Array*> pointers;
  arrays.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    arrays.push_back(pjrt::Array::from_host(client_, inputs[i], input_types_[i]));
    pointers.push_back(&arrays.back());
  }
  return (*this)(std::span<pjrt::Array* const>(pointers));
}

Compiled jit(std::string name, std::shared_ptr<const pjrt::Client> client,
             const std::vector<Module*>& modules, const std::vector<Input>& inputs,
             const Partitioner& partitioner, const Function& fn, pjrt::CompileCache* cache) {
  return Traced::trace(std::move(name), modules, inputs, partitioner, fn)
      ->lower()
      .compile(std::move(client), cache);
}

}  // namespace mt::nnx
