// Any bytes that parse as GGUF: written again and read back, tensors to the bit, and with them the
// metadata of the kinds that are ever written.
#include <unistd.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "base/error.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_write.h"

namespace mt::checkpoint {
namespace {

void expect(bool holds) {
  if (!holds) std::abort();
}

// The value as it must read back; nothing for kinds that are not written.
class Rewriter {
 public:
  Rewriter(GgufMetadata& to, std::string_view key) : to_(to), key_(key) {}

  bool operator()(bool value) const { return to_.flag(key_, value), true; }
  bool operator()(uint64_t value) const {
    const bool fits = value <= std::numeric_limits<uint32_t>::max();
    if (fits) to_.u32(key_, static_cast<int64_t>(value));
    return fits;
  }
  bool operator()(int64_t value) const {
    return value >= 0 && (*this)(static_cast<uint64_t>(value));
  }
  bool operator()(double value) const { return to_.f32(key_, value), true; }
  bool operator()(const std::string& value) const { return to_.text(key_, value), true; }
  bool operator()(const std::vector<std::string>& value) const {
    return to_.texts(key_, value), true;
  }
  bool operator()(const std::vector<float>& value) const { return to_.floats(key_, value), true; }
  bool operator()(const std::vector<int64_t>& value) const {
    std::vector<int32_t> narrow;
    for (const int64_t x : value) {
      if (x != static_cast<int32_t>(x)) return false;
      narrow.push_back(static_cast<int32_t>(x));
    }
    return to_.ints(key_, narrow), true;
  }
  template <typename Other>
  bool operator()(const Other&) const {
    return false;
  }

 private:
  GgufMetadata& to_;
  std::string_view key_;
};

bool same_float(double a, double b) {
  return std::bit_cast<uint32_t>(static_cast<float>(a)) ==
         std::bit_cast<uint32_t>(static_cast<float>(b));
}

bool same(const GgufValue& a, const GgufValue& b) {
  if (std::holds_alternative<uint64_t>(a.get()) || std::holds_alternative<int64_t>(a.get())) {
    return a.as_int() == b.as_int();
  }
  if (a.get().index() != b.get().index()) return false;
  if (const auto* x = std::get_if<double>(&a.get())) return same_float(*x, b.as_double());
  if (const auto* x = std::get_if<std::vector<float>>(&a.get())) {
    const auto& y = b.as_floats();
    return std::equal(x->begin(), x->end(), y.begin(), y.end(), same_float);
  }
  if (const auto* x = std::get_if<bool>(&a.get())) return *x == b.as_bool();
  if (const auto* x = std::get_if<std::string>(&a.get())) return *x == b.as_string();
  if (const auto* x = std::get_if<std::vector<int64_t>>(&a.get())) return *x == b.as_ints();
  return a.as_strings() == b.as_strings();
}

void rewrite(const GgufFile& file, const std::string& path) {
  GgufMetadata metadata;
  std::vector<std::string> kept;
  for (const auto& [key, value] : file.header().metadata) {
    if (std::visit(Rewriter(metadata, key), value.get())) kept.push_back(key);
  }
  std::vector<GgufTensorPlan> plans;
  for (const GgufTensor& t : file.header().tensors) {
    plans.push_back({t.name, t.format, t.info.shape});
    expect(plans.back().bytes() == t.info.stored_bytes);
  }
  GgufWriter writer(path, metadata, plans);
  for (const GgufTensor& t : file.header().tensors) writer.write(file.read_stored(t.name).bytes());
  writer.commit();
  const auto back = GgufFile::open(path);
  expect(back->names() == file.names());
  for (const std::string& key : kept) {
    expect(back->metadata(key) != nullptr && same(*file.metadata(key), *back->metadata(key)));
  }
  for (const std::string& name : file.names()) {
    const Tensor a = file.read_stored(name), b = back->read_stored(name);
    expect(file.find(name)->shape == back->find(name)->shape);
    expect(std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin(), b.bytes().end()));
  }
}

}  // namespace
}  // namespace mt::checkpoint

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using mt::checkpoint::ByteSource, mt::checkpoint::GgufFile;
  std::unique_ptr<GgufFile> file;
  try {
    file = GgufFile::open(ByteSource::memory(std::as_bytes(std::span(data, size)), "fuzz"));
  } catch (const mt::Error&) {
    return 0;
  }
  // What was read is written and read again without a fault: an Error here ends the run.
  const std::string path = fmt::format("/dev/shm/gguf_write_fuzz.{}.gguf", ::getpid());
  mt::checkpoint::rewrite(*file, path);
  ::unlink(path.c_str());
  return 0;
}
