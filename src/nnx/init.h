// First values of a module's variables, made on the device, already sharded. A parameter's key is
// derived from the seed and the name of its logical tensor, one layer each, so that the same seed
// gives the same weights scanned or not, on any mesh, bit for bit.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "nnx/module.h"
#include "nnx/partition.h"
#include "pjrt/cache.h"
#include "pjrt/client.h"

namespace mt::nnx {

// (path of a variable, layer within its stack) -> the logical tensor's name.
using LogicalName = std::function<std::string(const std::string& path, int64_t layer)>;

// "path" for variables that are not stacked, "path[layer]" for those that are.
std::string default_logical_name(const std::string& path, int64_t layer);

// Gives every variable that has none an array: by its initialiser, or zeros.
void initialize(Module& module, std::shared_ptr<const pjrt::Client> client,
                const Partitioner& partitioner, uint64_t seed,
                const LogicalName& logical_name = default_logical_name,
                pjrt::CompileCache* cache = nullptr);

}  // namespace mt::nnx
