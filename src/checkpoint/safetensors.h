// The safetensors format: 8 bytes of header length, a JSON header, the tensors' bytes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/byte_source.h"
#include "checkpoint/reader.h"

namespace mt::checkpoint {

struct SafetensorsEntry {
  std::string name;
  TensorInfo info;
  size_t offset = 0;  // of its first byte in the file
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;  // "__metadata__"
  std::vector<SafetensorsEntry> entries;        // in the order of their bytes
};

// Checks everything that can be checked without reading the tensors: header at most 100 MB and
// inside the file; ranges in order, without hole or overlap, each dtype times shape long, the last
// one ending at the end of the file; no key twice. Throws kIo; the message starts with the file and
// names the fault as the reference crate does (HeaderTooLarge, InvalidHeaderLength, ...).
SafetensorsHeader parse_safetensors(const ByteSource& source);

// One file.
std::unique_ptr<TensorReader> open_safetensors(const std::string& path);
std::unique_ptr<TensorReader> open_safetensors(const ByteSource& source);
// A folder: the shards that model.safetensors.index.json names (it is the truth: other files are
// ignored, a missing one is an error), or model.safetensors, or the only *.safetensors there.
std::unique_ptr<TensorReader> open_safetensors_folder(const std::string& path);

// Writes atomically, one tensor after the other, in the order given.
void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace mt::checkpoint
