// The module tree of a configuration as data: what each module holds, how each variable lies on the
// mesh, and what it takes of each device. Nothing is allocated, no plugin is opened.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "config/config.h"
#include "nnx/partition.h"

namespace mt::prove {

struct VariableRow {
  std::string path, kind;  // "decoder/layers/layers_0/mlp/wo/kernel", "Param"
  DType dtype = DType::kF32;
  Shape shape, shard_shape;
  std::vector<std::string> axes;  // logical
  std::string sharding;           // "P(fsdp, -, tensor)"
  int64_t elements = 0, bytes = 0, bytes_per_device = 0;
};

// A module and everything below it.
struct ModuleRow {
  std::string path, type;  // "decoder/layers", "Gemma3ScannableBlock"
  int64_t depth = 0;       // 0: the root
  int64_t elements = 0, bytes = 0, bytes_per_device = 0;
  std::vector<VariableRow> variables;  // its own
};

struct Inspection {
  std::string model;              // model_name
  std::vector<std::string> mesh;  // "fsdp=4", axes of more than one device
  int64_t devices = 1;
  std::vector<ModuleRow> modules;    // in the tree's order, the root first
  std::vector<ModuleRow> optimizer;  // the optimizer's, likewise
};

// Throws kConfig where the mesh doesn't divide the model.
Inspection inspect(const config::Config& config);

// `depth`: modules that lie deeper are counted in the one above; 0 shows all.
std::string to_text(const Inspection& inspection, int64_t depth = 0);
Json to_json(const Inspection& inspection);
std::string to_html(const Inspection& inspection);

}  // namespace mt::prove
