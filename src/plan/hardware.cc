#include "plan/hardware.h"

#include <dirent.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "config/config.h"
#include "config/packaged.h"
#include "config/suggest.h"
#include "config/yaml_file.h"

namespace mt::plan {
namespace {

constexpr std::string_view kSuffix = ".yml";

using config::Type;

// "v5p-8 v5p:2x2x1"
TopologyName parse_topology(const std::string& text, const std::string& path) {
  const size_t space = text.find(' ');
  if (space == std::string::npos || space == 0 || space + 1 == text.size()) {
    throw fail(ErrorKind::kConfig, "{}: topologies: '{}': expected 'NAME PLUGIN_NAME'", path, text);
  }
  return {text.substr(0, space), text.substr(space + 1)};
}

void read_entry(const config::YamlFile& file, size_t i, Hardware& out) {
  const std::string& key = file.entries()[i].key;
  const auto text = [&] { return std::get<std::string>(file.value(i, Type::kText)); };
  const auto number = [&] {
    const double value = std::get<double>(file.value(i, Type::kNumber));
    if (value > 0) return value;
    throw fail(ErrorKind::kConfig, "{}:{}: key '{}': expected a number above 0", file.path(),
               file.entries()[i].line, key);
  };
  if (key == "description") {
    out.description = text();
  } else if (key == "platform") {
    out.platform = text();
  } else if (key == "memory") {
    out.memory = static_cast<int64_t>(number());
  } else if (key == "bf16_flops") {
    out.bf16_flops = number();
  } else if (key == "memory_bandwidth") {
    out.memory_bandwidth = number();
  } else if (key == "link_bandwidth") {
    out.link_bandwidth = number();
  } else if (key == "network_bandwidth") {
    out.network_bandwidth = number();
  } else if (key == "target_config") {
    out.target_config = text();
  } else if (key == "topologies") {
    const auto list = std::get<std::vector<std::string>>(file.value(i, Type::kList));
    for (const std::string& t : list) {
      out.topologies.push_back(parse_topology(t, file.path()));
    }
  } else {
    throw fail(ErrorKind::kConfig, "{}:{}: '{}' is no property of a machine", file.path(),
               file.entries()[i].line, key);
  }
}

Hardware read_hardware(const std::string& path, std::string name) {
  const config::YamlFile file(path);
  Hardware out;
  out.name = std::move(name);
  for (size_t i = 0; i < file.entries().size(); ++i) read_entry(file, i, out);
  const bool complete = !out.platform.empty() && out.memory > 0 && out.bf16_flops > 0 &&
                        out.memory_bandwidth > 0 && out.link_bandwidth > 0 &&
                        out.network_bandwidth > 0 && !out.topologies.empty();
  if (complete) return out;
  throw fail(ErrorKind::kConfig,
             "{}: a machine has platform, memory, bf16_flops, memory_bandwidth, link_bandwidth, "
             "network_bandwidth and topologies",
             path);
}

[[noreturn]] void unknown_topology(const std::string& name, const std::vector<Hardware>& all) {
  std::string known;
  std::vector<std::string_view> names;
  for (const Hardware& h : all) {
    for (const TopologyName& t : h.topologies) {
      known += (known.empty() ? "" : ", ") + t.name;
      names.push_back(t.name);
    }
  }
  throw fail(ErrorKind::kConfig, "compile_topology={}: there is no such topology; known: {}.{}",
             name, known, config::did_you_mean(name, names));
}

}  // namespace

std::vector<Hardware> all_hardware() {
  const std::string folder = config::packaged_folder(config::process_environment()) + "/hardware";
  std::vector<std::string> names;
  DIR* directory = ::opendir(folder.c_str());
  if (directory == nullptr) {
    throw fail(ErrorKind::kIo, "{}: the folder of machines can't be read", folder);
  }
  while (const dirent* entry = ::readdir(directory)) {
    const std::string_view file = entry->d_name;
    if (file.ends_with(kSuffix)) names.emplace_back(file.substr(0, file.size() - kSuffix.size()));
  }
  ::closedir(directory);
  std::sort(names.begin(), names.end());
  std::vector<Hardware> out;
  for (std::string& name : names) {
    const std::string path = folder + "/" + name + std::string(kSuffix);
    out.push_back(read_hardware(path, std::move(name)));
  }
  return out;
}

Machine find_machine(const std::string& topology) {
  std::vector<Hardware> all = all_hardware();
  for (Hardware& h : all) {
    for (const TopologyName& t : h.topologies) {
      if (t.name == topology) return {h, t};
    }
  }
  unknown_topology(topology, all);
}

std::vector<int64_t> Machine::dims() const {
  std::vector<int64_t> out;
  const std::string& text = topology.plugins;
  const size_t colon = text.find(':');
  const char* at = text.data() + (colon == std::string::npos ? 0 : colon + 1);
  const char* const end = text.data() + text.size();
  while (at < end) {
    int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 1) {
      throw fail(ErrorKind::kConfig, "topology '{}': expected sizes as in v5p:2x2x1", text);
    }
    out.push_back(value);
    at = next < end ? next + 1 : end;
  }
  return out;
}

pjrt::TopologyOptions Machine::options(int64_t num_slices) const {
  pjrt::TopologyOptions out;
  out.platform = hardware.platform;
  if (hardware.target_config.empty()) {
    out.name = topology.plugins;
    if (num_slices > 1) out.extra["num_slices"] = num_slices;
  } else {
    out.extra["topology"] = topology.plugins;
    out.extra["target_config"] = hardware.target_config;
  }
  return out;
}

}  // namespace mt::plan
