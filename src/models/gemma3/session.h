// What every command on a model starts from: the devices, the mesh, the model, its weights.
#pragma once

#include <memory>
#include <string>

#include "config/config.h"
#include "models/gemma3/model.h"
#include "models/gemma3/weights.h"
#include "nnx/partition.h"
#include "pjrt/cache.h"
#include "pjrt/client.h"

namespace mt::models::gemma3 {

// The mesh that the configuration asks for, over the devices there are (any number on CPU).
sharding::Mesh mesh_from(const config::Config& config, int64_t devices);

struct Devices {
  std::shared_ptr<const pjrt::Client> client;
  std::shared_ptr<const nnx::Partitioner> partitioner;
  std::unique_ptr<pjrt::CompileCache> cache;  // null: jax_cache_dir is empty
};

// Loads the plugin that `hardware` or `pjrt_plugin` names and opens its devices.
Devices open_devices(const config::Config& config);

// Throws kConfig if `quantization` is set, for all that computes with floats.
void refuse_quantization(const config::Config& config);

// The model of this configuration, without arrays; of floats.
std::unique_ptr<Gemma3Model> make_model(const config::Config& config,
                                        std::shared_ptr<const nnx::Partitioner> partitioner);

// Reads every parameter from the source into sharded device arrays, one variable at a time. Throws
// kIo naming the tensor for a wrong shape; the source's check() finds all such faults at once.
void load_parameters(Gemma3Model& model, const WeightSource& source,
                     const std::shared_ptr<const pjrt::Client>& client);

struct StoredOptions {
  bool blocks = true;      // else quantised blocks become floats
  int64_t most_rows = 16;  // nnx::StoredForm's, of blocks
  bool pack = false;       // rows of blocks that are only multiplied, where that is faster; needs
                           // unlimited most_rows
};
// Lets every matrix stay as the source has it (WeightSource::stored). For a model without stacked
// layers, on one CPU device that knows the kernels; before load_parameters.
void keep_stored(Gemma3Model& model, const WeightSource& source, const StoredOptions& options);

// load_parameters_path, opened and checked against the model; null: random weights are wanted.
std::unique_ptr<WeightSource> open_weights(const Gemma3Model& model, const config::Config& config);

// The weights of the source, or without one random weights by init_weights_seed.
void give_parameters(Gemma3Model& model, const WeightSource* source, const config::Config& config,
                     const Devices& devices);

}  // namespace mt::models::gemma3
