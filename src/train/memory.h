// Host memory: what there is, what this process has, and whether a run fits before it allocates.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mt::train {

// Bytes. `used` is psutil's of MaxText's time: total - free - buffers - cached - reclaimable slabs.
struct RamStats {
  int64_t total = 0;
  int64_t available = 0;
  int64_t used = 0;
};

RamStats parse_meminfo(std::string_view text);  // throws kIo naming the missing line
RamStats read_ram_stats();                      // of /proc/meminfo

struct ProcessMemory {
  int64_t resident = 0;       // bytes in RAM now
  int64_t peak_resident = 0;  // the most there ever were
};
ProcessMemory read_process_memory();

// What this process may still take: the machine's available RAM, or less where a control group
// (container, Slurm step) has a lower limit. `root` is put before /proc and /sys, for tests.
int64_t available_memory(const std::string& root = "");

struct MemoryPart {
  std::string name;  // "parameters", "optimizer", "gradients", "activations", ...
  int64_t bytes_per_device = 0;
};

struct MemoryNeed {
  std::string what;  // "gemma3-4b"
  int64_t devices = 1;
  std::vector<MemoryPart> parts;

  int64_t bytes_per_device() const;
  int64_t bytes_on_all() const { return bytes_per_device() * devices; }
};

// The settings that a suggestion may change; only changes that would help are suggested.
struct MemorySettings {
  std::string model_name;  // no smaller one is suggested for "gemma3-270m" or ""
  std::string weight_dtype = "float32";
  std::string remat_policy = "full";
  std::string opt_type = "adamw";
  double per_device_batch_size = 1;
  int64_t max_target_length = 2048;
  int64_t num_vocab_tiling = 1;
};
std::vector<std::string> memory_suggestions(const MemorySettings& settings);

// CPU devices share the host's RAM: throws kLimit if all devices together need more than
// `available`, e.g. "gemma3-4b needs 43.4 GB (parameters 14.5, optimizer 28.9) but 22.9 GB of RAM
// is available, 20.5 GB too little: use a smaller model_name, weight_dtype=bfloat16".
void check_fits_host(const MemoryNeed& need, int64_t available, const MemorySettings& settings);
// Devices with memory of their own: the same for one device and its limit in bytes.
void check_fits_device(const MemoryNeed& need, int64_t limit, const MemorySettings& settings);

}  // namespace mt::train
