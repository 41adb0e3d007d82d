#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>

#include "base/error.h"
#include "checkpoint/gguf.h"

namespace mt::checkpoint {
namespace {

constexpr uint64_t kDefaultAlignment = 32;
constexpr uint32_t kMaxDimensions = 4;
constexpr int kMaxNesting = 4;  // arrays of arrays
constexpr size_t kWindow = size_t{1} << 18;

enum Type : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

// Reads forward through a window, so that a quarter of a million short strings cost few calls.
class Cursor {
 public:
  explicit Cursor(const ByteSource& source) : source_(source) {}

  size_t position() const { return position_; }
  size_t remaining() const { return source_.size() - position_; }

  void bytes(std::span<std::byte> out) {
    if (out.size() > remaining()) {
      throw error("{} bytes at {} leave the file of {}", out.size(), position_, source_.size());
    }
    while (!out.empty()) {
      if (position_ < begin_ || position_ >= begin_ + window_.size()) refill();
      const size_t at = position_ - begin_;
      const size_t n = std::min(out.size(), window_.size() - at);
      std::memcpy(out.data(), window_.data() + at, n);
      out = out.subspan(n);
      position_ += n;
    }
  }
  template <typename T>
  T number() {
    T v;
    bytes(std::as_writable_bytes(std::span(&v, 1)));
    return v;
  }
  // A count of things that take at least `least` bytes each.
  uint64_t count(size_t least) {
    const uint64_t n = number<uint64_t>();
    if (n > remaining() / least) {
      throw error("a count of {} at {} leaves the file of {}", n, position_ - 8, source_.size());
    }
    return n;
  }
  std::string string() {
    std::string text(count(1), '\0');
    bytes(std::as_writable_bytes(std::span(text.data(), text.size())));
    return text;
  }

  // What is being read; it goes into messages.
  void enter(std::string where) { where_ = std::move(where); }
  template <typename... Args>
  Error error(fmt::format_string<Args...> format, Args&&... args) const {
    return fail(ErrorKind::kIo, "{}: {}: {}", source_.name(), where_,
                fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  void refill() {
    begin_ = position_;
    window_.resize(std::min(kWindow, remaining()));
    source_.read_at(begin_, window_);
  }

  const ByteSource& source_;
  size_t position_ = 0;
  size_t begin_ = 0;  // of the window in the file
  std::vector<std::byte> window_;
  std::string where_ = "header";
};

// `count` numbers stored as S, widened to T.
template <typename S, typename T>
GgufValue number_array(Cursor& in, uint64_t count) {
  if (count > in.remaining() / sizeof(S)) {
    throw in.error("an array of {} leaves the file ({} bytes left)", count, in.remaining());
  }
  std::vector<S> stored(count);
  in.bytes(std::as_writable_bytes(std::span(stored)));
  if constexpr (std::is_same_v<S, T>) {
    return GgufValue(std::move(stored));
  } else {
    return GgufValue(std::vector<T>(stored.begin(), stored.end()));
  }
}

GgufValue parse_value(Cursor& in, uint32_t type, int depth);

GgufValue parse_array(Cursor& in, int depth) {
  if (depth >= kMaxNesting) throw in.error("arrays nested deeper than {}", kMaxNesting);
  const uint32_t type = in.number<uint32_t>();
  if (type == kString || type == kArray) {
    const uint64_t n = in.count(type == kString ? 8 : 12);
    if (type == kString) {
      std::vector<std::string> strings(n);
      for (std::string& s : strings) s = in.string();
      return GgufValue(std::move(strings));
    }
    std::vector<GgufValue> values(n);
    for (GgufValue& v : values) v = parse_array(in, depth + 1);
    return GgufValue(std::move(values));
  }
  const uint64_t n = in.count(1);
  switch (type) {
    case kU8: return number_array<uint8_t, int64_t>(in, n);
    case kI8: return number_array<int8_t, int64_t>(in, n);
    case kU16: return number_array<uint16_t, int64_t>(in, n);
    case kI16: return number_array<int16_t, int64_t>(in, n);
    case kU32: return number_array<uint32_t, int64_t>(in, n);
    case kI32: return number_array<int32_t, int64_t>(in, n);
    case kF32: return number_array<float, float>(in, n);
    case kBool: return number_array<uint8_t, uint8_t>(in, n);
    case kU64: return number_array<uint64_t, uint64_t>(in, n);
    case kI64: return number_array<int64_t, int64_t>(in, n);
    case kF64: return number_array<double, double>(in, n);
    default: throw in.error("an array of unknown type {}", type);
  }
}

template <typename S>
GgufValue integer(Cursor& in) {
  return GgufValue(static_cast<int64_t>(in.number<S>()));
}

GgufValue parse_value(Cursor& in, uint32_t type, int depth) {
  switch (type) {
    case kU8: return integer<uint8_t>(in);
    case kI8: return integer<int8_t>(in);
    case kU16: return integer<uint16_t>(in);
    case kI16: return integer<int16_t>(in);
    case kU32: return integer<uint32_t>(in);
    case kI32: return integer<int32_t>(in);
    case kF32: return GgufValue(static_cast<double>(in.number<float>()));
    case kBool: return GgufValue(in.number<uint8_t>() != 0);
    case kString: return GgufValue(in.string());
    case kArray: return parse_array(in, depth);
    case kU64: return GgufValue(in.number<uint64_t>());
    case kI64: return GgufValue(in.number<int64_t>());
    case kF64: return GgufValue(in.number<double>());
    default: throw in.error("unknown value type {}", type);
  }
}

uint32_t parse_version(Cursor& in) {
  in.enter("not a GGUF file");
  std::array<char, 4> magic{};
  in.bytes(std::as_writable_bytes(std::span(magic)));
  if (std::string_view(magic.data(), 4) != "GGUF")
    throw in.error("it does not start with \"GGUF\"");
  in.enter("header");
  const uint32_t version = in.number<uint32_t>();
  if (version == 0x02000000U || version == 0x03000000U) throw in.error("big-endian");
  if (version != 2 && version != 3) throw in.error("version {}, expected 2 or 3", version);
  return version;
}

// Names go into messages; a hostile one should not fill the screen.
std::string shown(const std::string& name) {
  return name.size() <= 100 ? name : name.substr(0, 100) + "...";
}

void parse_metadata(Cursor& in, uint64_t count, GgufHeader& header) {
  std::unordered_set<std::string> seen;
  for (uint64_t i = 0; i < count; ++i) {
    in.enter(fmt::format("metadata {} of {}", i + 1, count));
    std::string key = in.string();
    in.enter(fmt::format("key \"{}\"", shown(key)));
    if (!seen.insert(key).second) throw in.error("is there twice");
    const uint32_t type = in.number<uint32_t>();
    header.metadata.emplace_back(std::move(key), parse_value(in, type, 0));
  }
}

void parse_shape(Cursor& in, GgufTensor& tensor) {
  const uint32_t dimensions = in.number<uint32_t>();
  if (dimensions > kMaxDimensions) {
    throw in.error("{} dimensions, at most {} are allowed", dimensions, kMaxDimensions);
  }
  for (uint32_t d = 0; d < dimensions; ++d) {
    const uint64_t size = in.number<uint64_t>();
    if (size > static_cast<uint64_t>(INT64_MAX)) throw in.error("dimension {} is {}", d, size);
    tensor.info.shape.push_back(static_cast<int64_t>(size));
  }
  std::reverse(tensor.info.shape.begin(), tensor.info.shape.end());
}

// Type, sizes and offset; the offset still counts from the start of the data.
void parse_storage(Cursor& in, GgufTensor& tensor) {
  const uint32_t type = in.number<uint32_t>();
  tensor.format = find_block_format(type);
  if (!tensor.format) throw in.error("tensor type {} is not supported", type);
  TensorInfo& info = tensor.info;
  info.encoding = tensor.format->name;
  info.dtype = tensor.format->dtype;
  const int64_t row = info.shape.empty() ? 1 : info.shape.back();
  if (row % tensor.format->elements != 0) {
    throw in.error("rows of {} don't divide into {} blocks of {}", row, info.encoding,
                   tensor.format->elements);
  }
  int64_t elements = 1;
  for (const int64_t size : info.shape) {
    if (__builtin_mul_overflow(elements, size, &elements)) {
      throw in.error("{} is too large", to_string(info.shape));
    }
  }
  // Both the blocks and, for quantised types, the float32 values must be countable in bytes.
  int64_t decoded = 0;
  if (__builtin_mul_overflow(elements / tensor.format->elements, tensor.format->bytes,
                             &info.stored_bytes) ||
      __builtin_mul_overflow(elements, int64_t{8}, &decoded)) {
    throw in.error("{} is too large", to_string(info.shape));
  }
  tensor.offset = in.number<uint64_t>();
}

void parse_tensors(Cursor& in, uint64_t count, GgufHeader& header) {
  std::unordered_set<std::string> seen;
  for (uint64_t i = 0; i < count; ++i) {
    in.enter(fmt::format("tensor {} of {}", i + 1, count));
    GgufTensor tensor;
    tensor.name = in.string();
    in.enter(fmt::format("tensor \"{}\"", shown(tensor.name)));
    if (!seen.insert(tensor.name).second) throw in.error("is there twice");
    parse_shape(in, tensor);
    parse_storage(in, tensor);
    header.tensors.push_back(std::move(tensor));
  }
}

uint64_t alignment_of(Cursor& in, const GgufHeader& header) {
  for (const auto& [key, value] : header.metadata) {
    if (key != "general.alignment") continue;
    in.enter("key \"general.alignment\"");
    const auto* v = std::get_if<int64_t>(&value.get());
    if (!v || *v <= 0 || *v > (int64_t{1} << 31) ||
        !std::has_single_bit(static_cast<uint64_t>(*v))) {
      throw in.error("expected a power of two");
    }
    return static_cast<uint64_t>(*v);
  }
  return kDefaultAlignment;
}

void place_tensors(Cursor& in, size_t file_size, GgufHeader& header) {
  const uint64_t alignment = alignment_of(in, header);
  const uint64_t begin = (in.position() + alignment - 1) / alignment * alignment;
  for (GgufTensor& tensor : header.tensors) {
    in.enter(fmt::format("tensor \"{}\"", shown(tensor.name)));
    if (tensor.offset % alignment != 0) {
      throw in.error("offset {} is not a multiple of {}", tensor.offset, alignment);
    }
    const uint64_t bytes = static_cast<uint64_t>(tensor.info.stored_bytes);
    const uint64_t room = file_size > begin ? file_size - begin : 0;
    if (tensor.offset > room || bytes > room - tensor.offset) {
      throw in.error("{} bytes at {} of the data leave the file, whose data has {}", bytes,
                     tensor.offset, room);
    }
    tensor.offset += begin;
  }
}

}  // namespace

GgufHeader parse_gguf(const ByteSource& source) {
  Cursor in(source);
  GgufHeader header;
  header.version = parse_version(in);
  const uint64_t tensors = in.count(24);   // name length, dimension count, type, offset
  const uint64_t metadata = in.count(13);  // key length, type, a byte
  parse_metadata(in, metadata, header);
  parse_tensors(in, tensors, header);
  place_tensors(in, source.size(), header);
  return header;
}

}  // namespace mt::checkpoint
