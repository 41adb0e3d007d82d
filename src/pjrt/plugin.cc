#include "pjrt/plugin.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <climits>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "pjrt/api.h"

namespace mt::pjrt {
namespace {

bool is_file_name(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".so");
}

std::string canonical_name(const std::string& name) { return name == "gpu" ? "cuda" : name; }

std::string variable_for(std::string name) {
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return "MAXTEXT_PJRT_" + name;
}

std::string program_folder() {
  char path[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof(path));
  if (n <= 0) return ".";
  const std::string text(path, static_cast<size_t>(n));
  return text.substr(0, text.rfind('/'));
}

std::vector<std::string> folders_for(const std::string& name) {
  std::vector<std::string> out;
  if (const char* deps = std::getenv("MAXTEXT_DEPS"))
    out.push_back(fmt::format("{}/pjrt/{}", deps, name));
  const std::string program = program_folder();
  out.push_back(fmt::format("{}/../.deps/pjrt/{}", program, name));
  out.push_back(fmt::format("{}/.deps/pjrt/{}", program, name));
  return out;
}

// The first *.so of a folder by name, so that the choice doesn't depend on the file system.
std::optional<std::string> library_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* dir = ::opendir(folder.c_str());
  if (dir == nullptr) return std::nullopt;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string name = entry->d_name;
    if (name.ends_with(".so")) names.push_back(name);
  }
  ::closedir(dir);
  if (names.empty()) return std::nullopt;
  return folder + "/" + *std::min_element(names.begin(), names.end());
}

std::string how_to_get(const std::string& name) {
  if (name == "cpu") return "run `make setup` (it fetches lammps-jax-pjrt-cpu from PyPI)";
  if (name == "cuda") return "unpack jax-cuda13-pjrt from PyPI and put its .so there";
  if (name == "tpu") return "unpack libtpu from PyPI and put its .so there";
  return "the names known are cpu, cuda and tpu; or give a plugin's file";
}

[[noreturn]] void not_found(const std::string& name) {
  const std::string variable = variable_for(name);
  if (const char* file = std::getenv(variable.c_str())) {
    throw fail(ErrorKind::kDevice, "PJRT plugin '{}': ${} names {}, which is not there", name,
               variable, file);
  }
  throw fail(ErrorKind::kDevice, "PJRT plugin '{}' not found: tried ${}, {}; {}", name, variable,
             fmt::join(folders_for(name), ", "), how_to_get(name));
}

void check_regular(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    throw fail(ErrorKind::kDevice, "{}: no such PJRT plugin file", path);
  }
  if (!S_ISREG(info.st_mode)) {
    throw fail(ErrorKind::kDevice, "{}: not a PJRT plugin: not a regular file", path);
  }
}

const PJRT_Api* entry_point(const std::string& path) {
  // Plugins log through absl: keep errors, drop notes about our options. The user's value wins.
  ::setenv("TF_CPP_MIN_LOG_LEVEL", "2", 0);
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw fail(ErrorKind::kDevice, "{}: not a PJRT plugin that loads here: {}", path, ::dlerror());
  }
  auto* get = reinterpret_cast<const PJRT_Api* (*)()>(::dlsym(library, "GetPjrtApi"));
  if (get == nullptr) {
    ::dlclose(library);
    throw fail(ErrorKind::kDevice, "{}: not a PJRT plugin: it has no GetPjrtApi", path);
  }
  const PJRT_Api* api = get();
  if (api == nullptr || api->pjrt_api_version.major_version != PJRT_API_MAJOR) {
    throw fail(ErrorKind::kDevice, "{}: PJRT plugin of API version {}, expected {}.x", path,
               api == nullptr ? -1 : api->pjrt_api_version.major_version, PJRT_API_MAJOR);
  }
  return api;
}

}  // namespace

std::optional<std::string> find_plugin(const std::string& name) {
  const std::string wanted = canonical_name(name);
  if (const char* file = std::getenv(variable_for(wanted).c_str())) {
    return ::access(file, R_OK) == 0 ? std::optional<std::string>(file) : std::nullopt;
  }
  for (const std::string& folder : folders_for(wanted)) {
    if (auto file = library_in(folder)) return file;
  }
  return std::nullopt;
}

std::shared_ptr<const Plugin> Plugin::load(const std::string& name_or_path) {
  std::string path = name_or_path;
  if (!is_file_name(path)) {
    const auto found = find_plugin(name_or_path);
    if (!found) not_found(canonical_name(name_or_path));
    path = *found;
  }
  check_regular(path);
  // A plugin may be initialised once only, so the process remembers the ones it has.
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Plugin>> loaded;
  char resolved[PATH_MAX];
  if (::realpath(path.c_str(), resolved) != nullptr) path = resolved;
  const std::lock_guard<std::mutex> lock(mutex);
  auto& plugin = loaded[path];
  if (plugin == nullptr) plugin = open(path);
  return plugin;
}

std::shared_ptr<const Plugin> Plugin::open(const std::string& path) {
  const PJRT_Api* api = entry_point(path);
  PJRT_Plugin_Initialize_Args args{};
  call(*api, args);
  return std::shared_ptr<const Plugin>(new Plugin(path, api));
}

std::string Plugin::api_version() const {
  return fmt::format("{}.{}", api_->pjrt_api_version.major_version,
                     api_->pjrt_api_version.minor_version);
}

std::string Plugin::identity() const {
  struct stat info {};
  ::stat(path_.c_str(), &info);
  return fmt::format("{} {} {}.{} {}", path_, info.st_size, info.st_mtim.tv_sec,
                     info.st_mtim.tv_nsec, api_version());
}

}  // namespace mt::pjrt
