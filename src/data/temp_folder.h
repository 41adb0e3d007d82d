// For tests: a folder that goes away again.
#pragma once

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"

namespace mt::data {

class TempFolder final {
 public:
  TempFolder() {
    static int count = 0;
    path_ =
        std::filesystem::temp_directory_path() / fmt::format("mt_data_{}_{}", getpid(), count++);
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string write(const std::string& name, std::string_view text) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    write_file(file.string(), text);
    return file.string();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace mt::data
