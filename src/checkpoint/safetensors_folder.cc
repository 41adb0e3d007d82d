// A checkpoint in several safetensors files, bound together by an index.
#include <dirent.h>

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"

namespace mt::checkpoint {
namespace {

constexpr std::string_view kIndexName = "model.safetensors.index.json";

class ShardedFiles final : public TensorReader {
 public:
  ShardedFiles(std::string path, const Json& weight_map);

  const std::string& path() const override { return path_; }
  const std::vector<std::string>& names() const override { return names_; }
  const TensorInfo* find(std::string_view name) const override {
    const auto it = shard_of_.find(std::string(name));
    return it == shard_of_.end() ? nullptr : it->second->find(name);
  }
  Tensor read(std::string_view name) const override { return shard(name).read(name); }
  void read_f32(std::string_view name, int64_t first, std::span<float> out) const override {
    shard(name).read_f32(name, first, out);
  }

 private:
  const TensorReader& shard(std::string_view name) const {
    info(name);
    return *shard_of_.at(std::string(name));
  }
  const TensorReader* open_shard(const std::string& file);

  std::string path_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::unique_ptr<TensorReader>> files_;  // by file name
  std::unordered_map<std::string, const TensorReader*> shard_of_;         // by tensor name
};

// A plain name inside the folder: no way out of it.
void check_file_name(const std::string& index, const std::string& file) {
  const bool plain = !file.empty() && file != "." && file != ".." &&
                     file.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
  if (!plain) {
    throw fail(ErrorKind::kIo, "{}: \"{}\" is not the plain name of a file in the folder", index,
               file);
  }
}

ShardedFiles::ShardedFiles(std::string path, const Json& weight_map) : path_(std::move(path)) {
  const std::string index = fmt::format("{}/{}", path_, kIndexName);
  for (const auto& [name, value] : weight_map.as_object()) {
    if (!value.is_string()) {
      throw fail(ErrorKind::kIo, "{}: the file of tensor \"{}\" is not a string", index, name);
    }
    check_file_name(index, value.as_string());
    const TensorReader* file = open_shard(value.as_string());
    if (!file->find(name)) {
      throw fail(ErrorKind::kIo, "{}: no tensor \"{}\", which {} places there", file->path(), name,
                 kIndexName);
    }
    names_.push_back(name);
    shard_of_.emplace(name, file);
  }
  for (const auto& [file, reader] : files_) {
    for (const std::string& name : reader->names()) {
      const auto it = shard_of_.find(name);
      if (it != shard_of_.end() && it->second == reader.get()) continue;
      throw fail(ErrorKind::kIo, "{}: holds tensor \"{}\", which {} {}", reader->path(), name,
                 kIndexName,
                 it == shard_of_.end() ? "does not name"
                                       : fmt::format("places in {}", it->second->path()));
    }
  }
}

const TensorReader* ShardedFiles::open_shard(const std::string& file) {
  auto& reader = files_[file];
  if (!reader) {
    const std::string full = fmt::format("{}/{}", path_, file);
    if (!exists(full)) {
      throw fail(ErrorKind::kIo, "{}: missing, but {} names it", full, kIndexName);
    }
    reader = open_safetensors(full);
  }
  return reader.get();
}

Json read_weight_map(const std::string& index) {
  try {
    Json json = Json::parse(read_file(index), 8);
    const Json& map = json.at("weight_map");
    map.as_object();
    return map;
  } catch (const Error& error) {
    const std::string_view what = error.what();
    if (what.starts_with(index)) throw;
    throw fail(ErrorKind::kIo, "{}: {}", index, what);
  }
}

std::vector<std::string> safetensors_in(const std::string& path) {
  std::vector<std::string> out;
  DIR* folder = ::opendir(path.c_str());
  if (!folder) throw fail(ErrorKind::kIo, "{}: cannot list the folder", path);
  while (const dirent* entry = ::readdir(folder)) {
    const std::string name = entry->d_name;
    if (name.ends_with(".safetensors")) out.push_back(name);
  }
  ::closedir(folder);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

std::unique_ptr<TensorReader> open_safetensors_folder(const std::string& path) {
  const std::string index = fmt::format("{}/{}", path, kIndexName);
  if (exists(index)) return std::make_unique<ShardedFiles>(path, read_weight_map(index));
  const std::string single = path + "/model.safetensors";
  if (exists(single)) return open_safetensors(single);
  const std::vector<std::string> files = safetensors_in(path);
  if (files.size() == 1) return open_safetensors(fmt::format("{}/{}", path, files[0]));
  throw fail(ErrorKind::kIo, "{}: {} *.safetensors files and no {}, expected one or the other",
             path, files.size(), kIndexName);
}

}  // namespace mt::checkpoint
