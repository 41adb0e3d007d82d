#include "models/gemma3/session.h"

#include <cstring>

#include "base/error.h"
#include "base/heap.h"
#include "checkpoint/gguf_blocks.h"
#include "kernels/products.h"
#include "models/gemma3/from_run.h"
#include "nnx/init.h"
#include "nnx/jit.h"
#include "sharding/axes.h"
#include "sharding/build_mesh.h"

namespace mt::models::gemma3 {
namespace {

// Copies one layer's tensor to its place along the stacked axis of `out`.
void put_layer(Tensor& out, const Tensor& layer, int64_t axis, int64_t index) {
  int64_t outer = 1, inner = byte_size(out.dtype());
  for (int64_t i = 0; i < axis; ++i) outer *= out.shape()[static_cast<size_t>(i)];
  for (size_t i = static_cast<size_t>(axis) + 1; i < out.shape().size(); ++i)
    inner *= out.shape()[i];
  const int64_t length = out.shape()[static_cast<size_t>(axis)];
  std::byte* to = out.mutable_bytes().data();
  const std::byte* from = layer.bytes().data();
  for (int64_t o = 0; o < outer; ++o) {
    std::memcpy(to + (o * length + index) * inner, from + o * inner, static_cast<size_t>(inner));
  }
}

ir::Products narrow_products(const pjrt::Client& client) {
  if (!client.is_cpu()) return ir::Products::kAsTraced;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bf16")) return ir::Products::kBfloat16Rows;
#endif
  return ir::Products::kWide;
}

const checkpoint::BlockFormat& format_of(int64_t block_type) {
  const auto* format = checkpoint::find_block_format(static_cast<uint32_t>(block_type));
  MT_CHECK(format != nullptr);
  return *format;
}

Tensor packed(const Tensor& blocks, const nnx::StoredForm& form) {
  const std::shared_ptr<std::byte> memory = aligned_memory(blocks.bytes().size());
  kernels::pack_rows({}, format_of(form.block_type), blocks.bytes().data(), blocks.shape()[0],
                     form.columns, memory.get());
  return {DType::kU8, blocks.shape(), {memory.get(), blocks.bytes().size()}, memory};
}

// A table's rows are taken one by one, too.
bool can_pack(const nnx::Variable& v, const StoredMatrix& m) {
  return m.dtype == DType::kU8 && v.axes[0] != sharding::axes::vocab &&
         kernels::can_pack({}, format_of(m.block_type), m.rows);
}

Tensor read_variable(const Gemma3Model& model, const WeightSource& source, const std::string& path,
                     const nnx::Variable& v) {
  const auto name = [&](int64_t block) { return logical_name(model.config(), path, block); };
  if (v.stored) {
    const StoredMatrix matrix{v.stored->block_type, v.type.dtype,        v.type.shape[0],
                              v.stored->columns,    v.type.shape.back(), v.stored->multiplied};
    const Tensor blocks = source.read_stored(name(-1), v.stored->shape, matrix);
    return v.stored->packed ? packed(blocks, *v.stored) : blocks;
  }
  if (v.stack_axis < 0) return source.read(name(-1), v.type.shape, v.type.dtype);
  Tensor out(v.type.dtype, v.type.shape);
  for (int64_t i = 0; i < v.stack_length; ++i) {
    put_layer(out, source.read(name(i), v.layer_shape(), v.type.dtype), v.stack_axis, i);
  }
  return out;
}

}  // namespace

sharding::Mesh mesh_from(const config::Config& config, int64_t devices) {
  return sharding::build_mesh(config.parallelism(), devices);
}

Devices open_devices(const config::Config& config) {
  const std::string& plugin = config.text("pjrt_plugin");
  pjrt::ClientOptions options;
  options.platform = plugin.empty() ? config.text("hardware") : plugin;
  options.device_count = sharding::required_devices(config.parallelism());
  Devices out;
  out.client = pjrt::Client::create(options);
  const int64_t count = out.client->is_cpu() ? options.device_count
                                             : static_cast<int64_t>(out.client->devices().size());
  out.partitioner = std::make_shared<nnx::Partitioner>(nnx::Partitioner{
      mesh_from(config, count), config.logical_axis_rules(), narrow_products(*out.client)});
  const std::string& cache = config.text("jax_cache_dir");
  if (!cache.empty()) out.cache = std::make_unique<pjrt::CompileCache>(cache);
  return out;
}

void refuse_quantization(const config::Config& config) {
  const std::string& blocks = config.text("quantization");
  if (blocks.empty()) return;
  throw fail(ErrorKind::kConfig,
             "quantization={} isn't supported yet by maxtext.cpp but for decode: leave it empty",
             blocks);
}

std::unique_ptr<Gemma3Model> make_model(const config::Config& config,
                                        std::shared_ptr<const nnx::Partitioner> partitioner) {
  refuse_quantization(config);
  auto model = std::make_unique<Gemma3Model>(sizes_from(config), options_from(config), partitioner);
  for (const auto& [path, v] : nnx::variables(*model)) {
    nnx::array_type(path, *v, *partitioner);  // refuses sizes that the mesh doesn't divide
  }
  return model;
}

void keep_stored(Gemma3Model& model, const WeightSource& source, const StoredOptions& options) {
  for (const auto& [path, v] : nnx::variables(model)) {
    if (v->kind != nnx::VariableKind::kParam || v->stack_axis >= 0) continue;
    const auto decoded = options.blocks ? std::nullopt : std::optional(v->type.dtype);
    const auto m = source.stored(logical_name(model.config(), path, -1), v->type.shape, decoded);
    if (!m) continue;
    v->stored = {m->block_type,
                 m->columns,
                 m->multiplied,
                 options.most_rows,
                 options.pack && can_pack(*v, *m),
                 v->type.shape};
    if (m->dtype != DType::kU8) v->stored->most_rows = nnx::StoredForm{}.most_rows;
    v->type = {m->dtype, m->shape()};
    v->axes.assign(2, "");
  }
}

void load_parameters(Gemma3Model& model, const WeightSource& source,
                     const std::shared_ptr<const pjrt::Client>& client) {
  source.check(weight_shapes(model.config()));
  for (const auto& [path, v] : nnx::variables(model)) {
    if (v->kind != nnx::VariableKind::kParam) continue;
    const auto type = nnx::array_type(path, *v, *model.partitioner());
    v->array = std::make_shared<pjrt::Array>(pjrt::Array::from_host(
        client, read_variable(model, source, path, *v), type, pjrt::HostMemory::kZeroCopy));
    v->array->await();  // the host copy goes before the next one comes
  }
}

std::unique_ptr<WeightSource> open_weights(const Gemma3Model& model, const config::Config& config) {
  const std::string& path = config.text("load_parameters_path");
  if (path.empty()) return nullptr;
  auto source = WeightSource::open(path, model.options().dtype);
  source->check(weight_shapes(model.config()));  // before anything is compiled
  check_source_numbers(source->numbers(), model.config());
  return source;
}

void give_parameters(Gemma3Model& model, const WeightSource* source, const config::Config& config,
                     const Devices& devices) {
  if (source != nullptr) return load_parameters(model, *source, devices.client);
  nnx::initialize(
      model, devices.client, *devices.partitioner,
      static_cast<uint64_t>(config.integer("init_weights_seed")),
      [&](const std::string& p, int64_t block) { return logical_name(model.config(), p, block); },
      devices.cache.get());
}

}  // namespace mt::models::gemma3
