// PJRT plugins: shared libraries that compile StableHLO and run it on one kind of device.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

struct PJRT_Api;

namespace mt::pjrt {

// A loaded plugin. It stays loaded until the process ends (plugins keep threads of their own).
class Plugin {
 public:
  // `name_or_path` is cpu, cuda (gpu means the same), tpu, or a file (it has a '/' or ends in .so).
  // Throws kDevice: no such plugin (names the places tried and how to get it), not a plugin.
  static std::shared_ptr<const Plugin> load(const std::string& name_or_path);

  const PJRT_Api& api() const { return *api_; }
  const std::string& path() const { return path_; }
  std::string api_version() const;  // "0.115"
  // Changes whenever the file does: path, size, time of change, API version.
  std::string identity() const;

 private:
  Plugin(std::string path, const PJRT_Api* api) : path_(std::move(path)), api_(api) {}
  static std::shared_ptr<const Plugin> open(const std::string& path);
  std::string path_;
  const PJRT_Api* api_;
};

// The file that load(name) would open. Looked for in $MAXTEXT_PJRT_<NAME> (a file), then as
// <name>/*.so below $MAXTEXT_DEPS/pjrt, <program's folder>/../.deps/pjrt and
// <program's folder>/.deps/pjrt.
std::optional<std::string> find_plugin(const std::string& name);

}  // namespace mt::pjrt
