#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "data/source.h"

namespace mt::data {
namespace {

namespace fs = std::filesystem;

bool is_directory(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

void add_directory(const std::string& path, std::vector<std::string>& files) {
  const size_t before = files.size();
  std::error_code error;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    const std::string extension = it->path().extension().string();
    const bool text =
        extension == ".txt" || extension == ".md" || extension == ".jsonl" || extension == ".json";
    if (text && it->is_regular_file(error)) files.push_back(it->path().string());
  }
  if (error) throw fail(ErrorKind::kIo, "{}: {}", path, error.message());
  if (files.size() == before) {
    throw fail(ErrorKind::kIo, "{}: no .txt, .md, .json or .jsonl files in this folder", path);
  }
  std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end());
}

void add_pattern(const std::string& pattern, std::vector<std::string>& files) {
  glob_t matches = {};
  const int status = glob(pattern.c_str(), 0, nullptr, &matches);
  for (size_t i = 0; status == 0 && i < matches.gl_pathc; ++i) {
    if (!is_directory(matches.gl_pathv[i])) files.emplace_back(matches.gl_pathv[i]);
  }
  globfree(&matches);
  if (status != 0) throw fail(ErrorKind::kIo, "{}: no file matches this pattern", pattern);
}

}  // namespace

std::vector<std::string> expand_paths(const std::string& paths) {
  std::vector<std::string> files;
  size_t begin = 0;
  while (begin <= paths.size()) {
    const size_t end = std::min(paths.find(',', begin), paths.size());
    const std::string path = paths.substr(begin, end - begin);
    begin = end + 1;
    struct stat status = {};
    const bool there = stat(path.c_str(), &status) == 0;
    if (path.empty()) {
      throw fail(ErrorKind::kConfig, "an empty name in the list of text files '{}'", paths);
    }
    if (there && S_ISDIR(status.st_mode)) {
      add_directory(path, files);
    } else if (!there && path.find_first_of("*?[") != std::string::npos) {
      add_pattern(path, files);
    } else if (!there) {
      throw fail(ErrorKind::kIo, "{}: {}", path, std::strerror(errno));
    } else {
      files.push_back(path);
    }
  }
  return files;
}

}  // namespace mt::data
