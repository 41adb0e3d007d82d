#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/decode.h"

namespace mt::checkpoint {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;
constexpr int kMaxDepth = 8;  // the format needs 3

struct Encoding {
  std::string_view name;
  DType dtype;
};
constexpr std::array kEncodings = {
    Encoding{"BOOL", DType::kPred}, Encoding{"U8", DType::kU8},   Encoding{"I8", DType::kS8},
    Encoding{"I32", DType::kS32},   Encoding{"U32", DType::kU32}, Encoding{"I64", DType::kS64},
    Encoding{"U64", DType::kU64},   Encoding{"F16", DType::kF16}, Encoding{"BF16", DType::kBF16},
    Encoding{"F32", DType::kF32},   Encoding{"F64", DType::kF64},
};

// The file's name and a fault under the reference crate's name for it.
template <typename... Args>
Error fault(const ByteSource& source, std::string_view kind, fmt::format_string<Args...> format,
            Args&&... args) {
  constexpr size_t kLongest = 400;  // a tensor's name may be megabytes
  return fail(ErrorKind::kIo, "{}: {}: {}", source.name(), kind,
              fmt::format(format, std::forward<Args>(args)...).substr(0, kLongest));
}

std::string read_header(const ByteSource& source) {
  if (source.size() < 8) {
    throw fault(source, "HeaderTooSmall", "{} bytes, expected at least 8", source.size());
  }
  std::array<std::byte, 8> prefix{};
  source.read_at(0, prefix);
  const uint64_t length = std::bit_cast<uint64_t>(prefix);
  if (length > kMaxHeader) {
    throw fault(source, "HeaderTooLarge", "{} bytes of header, at most {} are allowed", length,
                kMaxHeader);
  }
  if (length > source.size() - 8) {
    throw fault(source, "InvalidHeaderLength", "{} bytes of header in a file of {}", length,
                source.size());
  }
  std::string text(length, '\0');
  source.read_at(8, std::as_writable_bytes(std::span(text.data(), text.size())));
  if (!text.starts_with('{')) throw fault(source, "InvalidHeaderStart", "expected '{{'");
  return text;
}

Json parse_json(const ByteSource& source, const std::string& text) {
  try {
    return Json::parse(text, kMaxDepth);
  } catch (const Error& error) {
    throw fault(source, "InvalidHeaderDeserialization", "{}", error.what());
  }
}

std::map<std::string, std::string> parse_metadata(const ByteSource& source, const Json& json) {
  std::map<std::string, std::string> out;
  if (!json.is_object()) {
    throw fault(source, "InvalidHeaderDeserialization", "__metadata__ is not an object");
  }
  for (const auto& [key, value] : json.as_object()) {
    if (!value.is_string()) {
      throw fault(source, "InvalidHeaderDeserialization",
                  "__metadata__ holds something else than a string under \"{}\"", key);
    }
    out.emplace(key, value.as_string());
  }
  return out;
}

DType parse_encoding(const ByteSource& source, const std::string& tensor, const std::string& name) {
  for (const Encoding& e : kEncodings) {
    if (e.name == name) return e.dtype;
  }
  throw fault(source, "unsupported dtype", "tensor \"{}\" is \"{}\"", tensor, name);
}

// The integers of an array, none negative.
std::vector<int64_t> parse_sizes(const Json& json) {
  std::vector<int64_t> out;
  for (const Json& item : json.as_array()) {
    if (!item.is_int() || item.as_int() < 0) {
      throw fail(ErrorKind::kIo, "expected whole numbers from 0 to 2^63-1");
    }
    out.push_back(item.as_int());
  }
  return out;
}

int64_t checked_bytes(const ByteSource& source, const std::string& tensor, const TensorInfo& info) {
  int64_t bytes = 0;
  try {
    if (!__builtin_mul_overflow(element_count(info.shape), byte_size(info.dtype), &bytes)) {
      return bytes;
    }
  } catch (const Error&) {  // the product of the dimensions overflows
  }
  throw fault(source, "ValidationOverflow", "tensor \"{}\": {} {} is too large", tensor,
              info.encoding, to_string(info.shape));
}

SafetensorsEntry parse_entry(const ByteSource& source, const std::string& name, const Json& json) {
  SafetensorsEntry entry;
  entry.name = name;
  std::vector<int64_t> range;
  try {
    entry.info.encoding = json.at("dtype").as_string();
    entry.info.shape = parse_sizes(json.at("shape"));
    range = parse_sizes(json.at("data_offsets"));
  } catch (const Error& error) {
    throw fault(source, "InvalidHeaderDeserialization", "tensor \"{}\": {}", name, error.what());
  }
  entry.info.dtype = parse_encoding(source, name, entry.info.encoding);
  entry.info.stored_bytes = checked_bytes(source, name, entry.info);
  if (range.size() != 2 || range[0] > range[1]) {
    throw fault(source, "InvalidOffset", "tensor \"{}\": data_offsets {}", name, to_string(range));
  }
  if (range[1] - range[0] != entry.info.stored_bytes) {
    throw fault(source, "TensorInvalidInfo", "tensor \"{}\": {} {} takes {} bytes, its range {}",
                name, entry.info.encoding, to_string(entry.info.shape), entry.info.stored_bytes,
                range[1] - range[0]);
  }
  entry.offset = static_cast<size_t>(range[0]);  // from the end of the header, for now
  return entry;
}

// Ranges must follow one another from 0 to the end of the file.
void check_ranges(const ByteSource& source, const SafetensorsHeader& header, size_t data_bytes) {
  size_t at = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.offset != at) {
      throw fault(source, "InvalidOffset", "tensor \"{}\" begins at {}, expected {} ({})",
                  entry.name, entry.offset, at, entry.offset < at ? "overlap" : "hole");
    }
    at += static_cast<size_t>(entry.info.stored_bytes);
    if (at > data_bytes) {
      throw fault(source, "MetadataIncompleteBuffer",
                  "tensor \"{}\" ends at byte {} of the data, which has {}", entry.name, at,
                  data_bytes);
    }
  }
  if (at != data_bytes) {
    throw fault(source, "MetadataIncompleteBuffer", "{} bytes of data, expected {}", data_bytes,
                at);
  }
}

class SafetensorsFile final : public TensorReader {
 public:
  explicit SafetensorsFile(const ByteSource& source)
      : source_(source), entries_(parse_safetensors(source).entries) {
    for (const SafetensorsEntry& entry : entries_) {
      by_name_.emplace(entry.name, &entry);
      names_.push_back(entry.name);
    }
  }

  const std::string& path() const override { return source_.name(); }
  const std::vector<std::string>& names() const override { return names_; }
  const TensorInfo* find(std::string_view name) const override {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : &it->second->info;
  }
  Tensor read(std::string_view name) const override {
    info(name);
    const SafetensorsEntry& entry = *by_name_.at(name);
    Tensor out(entry.info.dtype, entry.info.shape);
    source_.read_at(entry.offset, out.mutable_bytes());
    return out;
  }
  void read_f32(std::string_view name, int64_t first, std::span<float> out) const override {
    info(name);
    const SafetensorsEntry& entry = *by_name_.at(name);
    const BlockFormat* format = find_block_format(entry.info.encoding);
    if (!format || !format->to_float) {
      throw fail(ErrorKind::kIo, "{}: tensor \"{}\" is {}, expected a float type", path(), name,
                 entry.info.encoding);
    }
    decode_f32(source_, {name, &entry.info, format, entry.offset}, first, out);
  }

 private:
  ByteSource source_;
  std::vector<SafetensorsEntry> entries_;
  std::vector<std::string> names_;
  std::unordered_map<std::string_view, const SafetensorsEntry*> by_name_;
};

}  // namespace

SafetensorsHeader parse_safetensors(const ByteSource& source) {
  const std::string text = read_header(source);
  const Json json = parse_json(source, text);
  SafetensorsHeader header;
  for (const auto& [name, value] : json.as_object()) {
    if (name == "__metadata__") {
      header.metadata = parse_metadata(source, value);
    } else {
      header.entries.push_back(parse_entry(source, name, value));
    }
  }
  // Empty tensors share their offset with the next one, so they go first.
  std::stable_sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.offset, a.info.stored_bytes) < std::pair(b.offset, b.info.stored_bytes);
  });
  const size_t data_begin = 8 + text.size();
  check_ranges(source, header, source.size() - data_begin);
  for (SafetensorsEntry& entry : header.entries) entry.offset += data_begin;
  return header;
}

std::unique_ptr<TensorReader> open_safetensors(const ByteSource& source) {
  return std::make_unique<SafetensorsFile>(source);
}

std::unique_ptr<TensorReader> open_safetensors(const std::string& path) {
  return open_safetensors(ByteSource::file(path));
}

}  // namespace mt::checkpoint
