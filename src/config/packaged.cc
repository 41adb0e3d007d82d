#include "config/packaged.h"

#include <dirent.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/file.h"

namespace mt::config {
namespace {

bool holds_configs(const std::string& folder) { return exists(folder + "/base.yml"); }

std::string program_folder() {
  std::array<char, 4096> path{};
  const ssize_t n = ::readlink("/proc/self/exe", path.data(), path.size());
  if (n <= 0) return "";
  const std::string program(path.data(), static_cast<size_t>(n));
  return program.substr(0, program.rfind('/'));
}

}  // namespace

std::string packaged_folder(const std::map<std::string, std::string>& environment) {
  const auto it = environment.find("MAXTEXT_CONFIGS");
  if (it != environment.end() && !it->second.empty()) {
    if (holds_configs(it->second)) return it->second;
    throw fail(ErrorKind::kConfig, "MAXTEXT_CONFIGS={}: no base.yml there", it->second);
  }
  const std::string program = program_folder();
  for (const char* place : {"/../configs", "/../share/maxtext/configs", "/configs"}) {
    if (holds_configs(program + place)) return program + place;
  }
  return "";
}

bool is_maxtext_key(const std::string& folder, std::string_view key) {
  const std::string path = folder + "/maxtext_keys.txt";
  if (folder.empty() || key.empty() || key.find('\n') != std::string_view::npos || !exists(path)) {
    return false;
  }
  return read_file(path).find(fmt::format("\n{}\n", key)) != std::string::npos;
}

std::vector<std::string> model_names(const std::string& folder) {
  constexpr std::string_view kSuffix = ".yml";
  std::vector<std::string> names;
  DIR* directory = ::opendir((folder + "/models").c_str());
  if (directory == nullptr) return names;
  while (const dirent* entry = ::readdir(directory)) {
    const std::string_view file = entry->d_name;
    if (file.ends_with(kSuffix)) names.emplace_back(file.substr(0, file.size() - kSuffix.size()));
  }
  ::closedir(directory);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace mt::config
