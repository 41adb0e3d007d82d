#include "plan/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "models/gemma3/session.h"
#include "pjrt/executable.h"
#include "train/memory.h"

namespace mt::plan {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

CompiledFacts facts(const pjrt::Program& program) {
  return {program.memory_stats(), program.cost_analysis(), program.optimized_program(), 0};
}

}  // namespace

Target Target::open(const config::Config& config) {
  Target out;
  const std::string& topology = config.text("compile_topology");
  if (topology.empty()) {
    models::gemma3::Devices devices = models::gemma3::open_devices(config);
    out.client_ = devices.client;
    out.partitioner_ = devices.partitioner;
    return out;
  }
  out.machine_ = find_machine(topology);
  const int64_t slices = std::max<int64_t>(1, config.integer("compile_topology_num_slices"));
  out.topology_ =
      std::make_shared<const pjrt::Topology>(pjrt::Topology::create(out.machine_->options(slices)));
  out.partitioner_ = std::make_shared<nnx::Partitioner>(
      nnx::Partitioner{models::gemma3::mesh_from(config, out.topology_->device_count()),
                       config.logical_axis_rules(), ir::Products::kAsTraced});
  return out;
}

std::string Target::description() const {
  if (client_ != nullptr) {
    return fmt::format("this machine: {} x {}", device_count(), client_->platform_name());
  }
  return fmt::format("{}: {} x {} (not here; {})", machine_->topology.name, device_count(),
                     machine_->hardware.description, machine_->topology.plugins);
}

int64_t Target::memory() const {
  if (machine_) return machine_->hardware.memory;
  if (shares_host_memory()) return train::available_memory();
  const auto stats = client_->memory_stats(0);
  return stats && stats->limit ? *stats->limit : 0;
}

CompiledFacts Target::compile(const std::string& stablehlo, pjrt::CompileOptions options) const {
  options.num_partitions = device_count();
  const auto start = std::chrono::steady_clock::now();
  CompiledFacts out;
  if (client_ != nullptr) {
    const auto executable = pjrt::Executable::compile(client_, stablehlo, options);
    out = facts(executable.program());
  } else {
    out = facts(topology_->compile(stablehlo, options));
  }
  out.seconds = seconds_since(start);
  return out;
}

}  // namespace mt::plan
