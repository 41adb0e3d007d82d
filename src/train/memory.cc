#include "train/memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>

#include "base/error.h"

namespace mt::train {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

std::optional<int64_t> leading_int(std::string_view text) {
  text = trim(text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) return kUnlimited;  // cgroup v1's "no limit"
  if (error != std::errc() || value < 0) return std::nullopt;
  return value;
}

// The number after `name` at the start of a line ("MemTotal:  24 kB", "active_file 12").
std::optional<int64_t> field(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(name)) return leading_int(line.substr(name.size()));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return std::nullopt;
}

// Files under /proc and /sys say that they are empty, so base's read_file can't be used.
std::optional<std::string> try_read(const std::string& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), std::fclose);
  if (!file) return std::nullopt;
  std::string text;
  char piece[4096];
  while (const size_t size = std::fread(piece, 1, sizeof(piece), file.get())) {
    text.append(piece, size);
  }
  return text;
}

std::string read_proc(const std::string& path) {
  auto text = try_read(path);
  if (!text) throw fail(ErrorKind::kIo, "{}: can't be read", path);
  return *std::move(text);
}

// What the group at `folder` leaves this process; page cache counts as free, as in MemAvailable.
int64_t group_headroom(const std::string& folder, bool v2) {
  const auto limit = try_read(folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto usage = try_read(folder + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !usage) return kUnlimited;
  const auto limit_bytes = leading_int(*limit);  // "max" is none
  const auto used_bytes = leading_int(*usage);
  if (!limit_bytes || !used_bytes || *limit_bytes == kUnlimited) return kUnlimited;
  const std::string stat = try_read(folder + "/memory.stat").value_or("");
  const int64_t cache =
      field(stat, "inactive_file ").value_or(0) + field(stat, "active_file ").value_or(0);
  return std::max<int64_t>(0, *limit_bytes - std::max<int64_t>(0, *used_bytes - cache));
}

// The least headroom of the group at `path` and its parents up to the mount's root.
int64_t headroom_upwards(const std::string& mount, std::string path, bool v2) {
  int64_t least = kUnlimited;
  while (true) {
    least = std::min(least, group_headroom(mount + path, v2));
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return least;
    path.resize(slash);
  }
}

int64_t control_group_headroom(const std::string& root) {
  const std::string groups = try_read(root + "/proc/self/cgroup").value_or("");
  int64_t least = kUnlimited;
  std::string_view rest = groups;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const size_t controllers = line.find(':');
    const size_t path = line.find(':', controllers + 1);
    if (controllers == std::string_view::npos || path == std::string_view::npos) continue;
    const bool v2 = line.starts_with("0::");
    if (!v2 && line.find(":memory:") == std::string_view::npos) continue;
    const std::string mount = root + (v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
    std::string group(line.substr(path + 1));
    if (group == "/") group.clear();
    least = std::min(least, headroom_upwards(mount, std::move(group), v2));
  }
  return least;
}

double gib(int64_t bytes) { return static_cast<double>(bytes) / 1073741824.0; }

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// "gemma3-4b needs 43.4 GB (parameters 14.5, optimizer 28.9) `where` but 22.9 GB of `memory` ..."
Error does_not_fit(const MemoryNeed& need, int64_t scale, int64_t available, const char* where,
                   const char* memory, const std::vector<std::string>& changes) {
  std::vector<std::string> parts;
  for (const MemoryPart& part : need.parts) {
    parts.push_back(fmt::format("{} {:.1f}", part.name, gib(part.bytes_per_device * scale)));
  }
  const int64_t bytes = need.bytes_per_device() * scale;
  return fail(ErrorKind::kLimit,
              "{} needs {:.1f} GB ({}){} but {:.1f} GB of {} is available, {:.1f} GB too little: "
              "use {}",
              need.what, gib(bytes), join(parts), where, gib(available), memory,
              gib(bytes - available), join(changes));
}

}  // namespace

RamStats parse_meminfo(std::string_view text) {
  const auto bytes = [&](std::string_view name) {
    const auto kib = field(text, name);
    if (!kib) throw fail(ErrorKind::kIo, "/proc/meminfo: no line \"{}\"", name);
    return *kib * 1024;
  };
  RamStats ram;
  ram.total = bytes("MemTotal:");
  ram.available = bytes("MemAvailable:");
  const int64_t free = bytes("MemFree:");
  // Containers may lack the slab line.
  const int64_t cached = bytes("Cached:") + field(text, "SReclaimable:").value_or(0) * 1024;
  ram.used = ram.total - free - bytes("Buffers:") - cached;
  if (ram.used < 0) ram.used = ram.total - free;
  return ram;
}

RamStats read_ram_stats() { return parse_meminfo(read_proc("/proc/meminfo")); }

ProcessMemory read_process_memory() {
  const std::string status = read_proc("/proc/self/status");
  ProcessMemory memory;
  memory.resident = field(status, "VmRSS:").value_or(0) * 1024;
  memory.peak_resident = field(status, "VmHWM:").value_or(0) * 1024;
  return memory;
}

int64_t available_memory(const std::string& root) {
  const RamStats ram = parse_meminfo(read_proc(root + "/proc/meminfo"));
  return std::min(ram.available, control_group_headroom(root));
}

int64_t MemoryNeed::bytes_per_device() const {
  int64_t sum = 0;
  for (const MemoryPart& part : parts) sum += part.bytes_per_device;
  return sum;
}

std::vector<std::string> memory_suggestions(const MemorySettings& settings) {
  std::vector<std::string> changes;
  const auto& model = settings.model_name;
  if (!model.empty() && model != "default" && model != "gemma3-270m") {
    changes.push_back("a smaller model_name");
  }
  if (settings.weight_dtype == "float32") changes.push_back("weight_dtype=bfloat16");
  if (settings.remat_policy != "full") changes.push_back("remat_policy=full");
  if (settings.per_device_batch_size > 1) changes.push_back("per_device_batch_size=1");
  if (settings.max_target_length > 512) changes.push_back("a smaller max_target_length");
  if (settings.num_vocab_tiling <= 1) changes.push_back("num_vocab_tiling=8");
  if (settings.opt_type != "sgd") changes.push_back("opt_type=sgd");
  return changes;
}

void check_fits_host(const MemoryNeed& need, int64_t available, const MemorySettings& settings) {
  if (need.bytes_on_all() <= available) return;
  std::vector<std::string> changes = memory_suggestions(settings);
  changes.push_back("a machine with more RAM");
  throw does_not_fit(need, need.devices, available, "", "RAM", changes);
}

void check_fits_device(const MemoryNeed& need, int64_t limit, const MemorySettings& settings) {
  if (need.bytes_per_device() <= limit) return;
  std::vector<std::string> changes = memory_suggestions(settings);
  changes.push_back("more devices (ici_fsdp_parallelism)");
  const std::string where = fmt::format(" on each of {} devices", need.devices);
  throw does_not_fit(need, 1, limit, where.c_str(), "device memory", changes);
}

}  // namespace mt::train
