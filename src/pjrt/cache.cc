#include "pjrt/cache.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace mt::pjrt {
namespace {

constexpr char kMagic[8] = {'m', 't', 'x', 'e', 'x', 'e', 'c', '1'};
constexpr const char* kSuffix = ".mtexec";

struct Header {  // little endian, as every machine that this runs on
  char magic[8];
  Hash128 key;
  uint64_t length;
  Hash128 checksum;
};
static_assert(sizeof(Header) == 48);

// Odd constants with about as many ones as zeros.
constexpr uint64_t kA = 0x9e3779b97f4a7c15U, kB = 0xd6e8feb86659fd93U;

uint64_t finish(uint64_t x) {
  x ^= x >> 32;
  x *= kB;
  x ^= x >> 29;
  x *= kA;
  return x ^ (x >> 32);
}

// The lines that say what instructions the first processor has; they decide XLA's code.
std::string processor_features() {
  std::string text;
  try {
    // Not read_file: files in /proc have no size.
    FILE* file = std::fopen("/proc/cpuinfo", "re");
    if (file == nullptr) return "unknown";
    char block[4096];
    for (size_t n; (n = std::fread(block, 1, sizeof(block), file)) > 0;) text.append(block, n);
    std::fclose(file);
  } catch (const std::bad_alloc&) {
    return "unknown";
  }
  text.resize(std::min(text.size(), text.find("\n\n")));  // the first processor
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.size(), text.find('\n', at));
    const std::string line = text.substr(at, end - at);
    for (const char* start : {"flags", "Features", "model name", "CPU part", "CPU implementer"}) {
      if (line.starts_with(start)) out += line + "\n";
    }
    at = end + 1;
  }
  return out;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return fmt::format("{}={}\n", name, value == nullptr ? "" : value);
}

}  // namespace

std::string Hash128::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Hash128 hash128(std::string_view bytes, Hash128 seed) {
  uint64_t a = seed.high ^ kA;
  uint64_t b = seed.low ^ kB;
  const auto mix = [&](uint64_t word) {
    a = std::rotl(a ^ word, 29) * kA;
    b = (std::rotl(b + word, 41) ^ a) * kB;
  };
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    mix(word);
  }
  uint64_t last = 0;
  if (i < bytes.size()) std::memcpy(&last, bytes.data() + i, bytes.size() - i);
  mix(last);
  mix(bytes.size());
  return {finish(a ^ std::rotl(b, 32)), finish(b + finish(a))};
}

CompileCache::CompileCache(std::string folder, int64_t max_bytes)
    : folder_(std::move(folder)), max_bytes_(max_bytes) {
  make_directories(folder_);
}

Hash128 CompileCache::key(const Client& client, std::string_view program,
                          const CompileOptions& options) const {
  std::string rest = fmt::format("{}\n{}\n{}\n", client.plugin().identity(),
                                 client.platform_version(), client.devices().size());
  for (const DeviceInfo& device : client.devices()) rest += device.kind + "\n";
  for (const char* name : {"XLA_FLAGS", "LIBTPU_INIT_ARGS"}) rest += environment(name);
  if (client.is_cpu()) {
    rest += processor_features();
    rest += std::to_string(std::thread::hardware_concurrency());
  }
  const CompileOptions used = client.is_cpu() ? with_cpu_defaults(options) : options;
  return hash128(rest, hash128(serialize(used), hash128(program)));
}

std::string CompileCache::path(const Hash128& key) const {
  return folder_ + "/" + key.hex() + kSuffix;
}

std::optional<std::string> CompileCache::load(const Hash128& key) const {
  std::string bytes;
  try {
    bytes = read_file(path(key));
  } catch (const Error&) {
    return std::nullopt;
  }
  Header header{};
  if (bytes.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || !(header.key == key) ||
      header.length != bytes.size() - sizeof(header)) {
    return std::nullopt;
  }
  bytes.erase(0, sizeof(header));
  if (!(hash128(bytes) == header.checksum)) return std::nullopt;
  return bytes;
}

bool CompileCache::store(const Hash128& key, std::string_view executable) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.key = key;
  header.length = executable.size();
  header.checksum = hash128(executable);
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes += executable;
  // write_file's temporary name differs between processes, not between threads.
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  try {
    write_file(path(key), bytes);
  } catch (const Error& error) {
    problem_ = error.what();
    return false;
  }
  trim();
  return true;
}

void CompileCache::trim() const {
  struct Entry {
    int64_t time;
    int64_t size;
    std::string path;
  };
  std::vector<Entry> entries;
  int64_t total = 0;
  DIR* dir = ::opendir(folder_.c_str());
  if (dir == nullptr) return;
  while (const dirent* item = ::readdir(dir)) {
    const std::string name = item->d_name;
    struct stat info {};
    if (!name.ends_with(kSuffix) || ::stat((folder_ + "/" + name).c_str(), &info) != 0) continue;
    entries.push_back({info.st_mtim.tv_sec, info.st_size, folder_ + "/" + name});
    total += info.st_size;
  }
  ::closedir(dir);
  std::sort(entries.begin(), entries.end(),
            [](const Entry& x, const Entry& y) { return x.time < y.time; });
  for (size_t i = 0; i + 1 < entries.size() && total > max_bytes_; ++i) {  // the newest stays
    ::unlink(entries[i].path.c_str());
    total -= entries[i].size;
  }
}

}  // namespace mt::pjrt
