// Protobuf wire format: a bounds-checked reader over untrusted bytes and a small writer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mt::data {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct WireField {
  uint32_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t value = 0;      // varint, fixed64, fixed32
  std::string_view bytes;  // kBytes
};

class WireReader final {
 public:
  // `name` begins every error message; `offset` is where `bytes` lie in the file.
  WireReader(std::string_view bytes, const std::string& name, size_t offset = 0)
      : bytes_(bytes), name_(&name), offset_(offset) {}

  // False at the end. Throws kIo for a varint of more than 10 bytes, a length past the end, a
  // group, a field number 0.
  bool next(WireField& field);
  size_t position() const { return offset_ + at_; }  // in the file, of the next field
  // A reader of the message in the field that next() has just returned.
  WireReader inside(const WireField& field) const;

 private:
  uint64_t varint();
  std::string_view take(uint64_t count);
  uint64_t little_endian(size_t count);

  std::string_view bytes_;
  const std::string* name_;
  size_t offset_;
  size_t at_ = 0;
};

void put_varint(std::string& out, uint64_t value);
void put_varint_field(std::string& out, uint32_t number, uint64_t value);
void put_float_field(std::string& out, uint32_t number, float value);
void put_bytes_field(std::string& out, uint32_t number, std::string_view bytes);

}  // namespace mt::data
