// Machines as data (configs/hardware/*.yml): what a chip can do, and the topologies it comes in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pjrt/topology.h"

namespace mt::plan {

struct TopologyName {
  std::string name;     // as compile_topology has it: "v5p-8"
  std::string plugins;  // as the plugin has it: "v5p:2x2x1"
};

struct Hardware {
  std::string name;         // of the file: "v5p"
  std::string description;  // "TPU v5p"
  std::string platform;     // the plugin: "tpu", "cuda"
  int64_t memory = 0;       // bytes that a program can have on one device
  double bf16_flops = 0;    // a second
  double memory_bandwidth = 0;
  double link_bandwidth = 0;     // bytes a second to one neighbour, one way
  double network_bandwidth = 0;  // between hosts, one device's share
  std::string target_config;     // of a GPU: text of xla.GpuTargetConfigProto
  std::vector<TopologyName> topologies;
};

// One machine that can be compiled for.
struct Machine {
  Hardware hardware;
  TopologyName topology;
  std::vector<int64_t> dims() const;  // {2, 2, 1}

  pjrt::TopologyOptions options(int64_t num_slices) const;
};

// Throws kConfig: no such topology (the known ones are listed), or a fault of its file.
Machine find_machine(const std::string& topology);

// All files of the packaged folder, sorted by name.
std::vector<Hardware> all_hardware();

}  // namespace mt::plan
