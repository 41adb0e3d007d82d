// Compiled programs kept on disk.
//
// One file per program, named by a 128-bit hash of everything that decides what the compiler makes:
// program text, compile options, plugin (path, size, time, versions), devices, XLA_FLAGS and, on
// CPU, the processor's features and count. A file starts with a header (magic, key, length,
// checksum); one that is cut short, damaged or not ours counts as absent and is overwritten. Files
// are written aside and renamed, so several processes may share a folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "pjrt/client.h"
#include "pjrt/options.h"

namespace mt::pjrt {

struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;
  bool operator==(const Hash128&) const = default;
  std::string hex() const;  // 32 digits
};
// Fast and well mixed, but no defence against somebody who looks for collisions.
Hash128 hash128(std::string_view bytes, Hash128 seed = {});

class CompileCache {
 public:
  // Makes the folder; throws kIo if it can't. Beyond max_bytes the least recently written go.
  explicit CompileCache(std::string folder, int64_t max_bytes = int64_t{4} << 30);

  Hash128 key(const Client& client, std::string_view program, const CompileOptions& options) const;
  std::optional<std::string> load(const Hash128& key) const;
  // A full disk or a read-only folder is no reason to stop: false, and problem() says why.
  bool store(const Hash128& key, std::string_view executable);

  std::string path(const Hash128& key) const;
  const std::string& problem() const { return problem_; }

 private:
  void trim() const;
  std::string folder_;
  int64_t max_bytes_;
  std::string problem_;
};

}  // namespace mt::pjrt
