#include "config/paths.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/error.h"

namespace mt::config {
namespace {

bool is_url(const std::string& path) {
  const size_t colon = path.find("://");
  return colon != std::string::npos && colon > 0 &&
         std::all_of(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(colon),
                     [](unsigned char c) { return std::isalnum(c) != 0; });
}

}  // namespace

std::string home_folder(const std::map<std::string, std::string>& environment) {
  const auto it = environment.find("HOME");
  if (it != environment.end() && !it->second.empty()) return it->second;
  std::vector<char> text(16384);
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(::getuid(), &entry, text.data(), text.size(), &found) != 0) return "";
  return found == nullptr ? "" : found->pw_dir;
}

std::string local_path(const std::string& key, const std::string& path, const std::string& home) {
  if (is_url(path)) {
    throw fail(ErrorKind::kConfig,
               "{}={}: cloud storage and addresses are not supported, only files and folders", key,
               path);
  }
  if (path != "~" && !path.starts_with("~/")) return path;
  if (home.empty()) {
    throw fail(ErrorKind::kConfig, "{}={}: there is no home folder: set HOME, or {}=FOLDER", key,
               path, key);
  }
  return home + path.substr(1);
}

void check_run_name(const std::string& run_name) {
  for (size_t start = 0; start <= run_name.size();) {
    const size_t end = std::min(run_name.find('/', start), run_name.size());
    if (run_name.substr(start, end - start) == "..") {
      throw fail(ErrorKind::kConfig, "run_name={}: would lie outside base_output_directory",
                 run_name);
    }
    start = end + 1;
  }
}

}  // namespace mt::config
