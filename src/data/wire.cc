#include "data/wire.h"

#include <bit>

#include "base/error.h"

namespace mt::data {

uint64_t WireReader::varint() {
  const size_t start = position();
  uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (at_ == bytes_.size()) {
      throw fail(ErrorKind::kIo, "{}: the file ends inside a number at byte {}", *name_, start);
    }
    const auto byte = static_cast<uint8_t>(bytes_[at_++]);
    if (shift < 63 || byte <= 1) value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  throw fail(ErrorKind::kIo, "{}: a number (varint) of more than 10 bytes at byte {}", *name_,
             start);
}

std::string_view WireReader::take(uint64_t count) {
  const size_t left = bytes_.size() - at_;
  if (count > left) {
    throw fail(ErrorKind::kIo, "{}: a field of {} bytes at byte {}, where only {} are left", *name_,
               count, position(), left);
  }
  const std::string_view taken = bytes_.substr(at_, count);
  at_ += count;
  return taken;
}

uint64_t WireReader::little_endian(size_t count) {
  uint64_t value = 0;
  int shift = 0;
  for (const char byte : take(count)) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(byte)) << shift;
    shift += 8;
  }
  return value;
}

bool WireReader::next(WireField& field) {
  if (at_ == bytes_.size()) return false;
  const size_t start = position();
  const uint64_t key = varint();
  if (key >> 3 == 0 || key >> 32 != 0) {
    throw fail(ErrorKind::kIo, "{}: bad field number {} at byte {}", *name_, key >> 3, start);
  }
  field = {static_cast<uint32_t>(key >> 3), static_cast<WireType>(key & 7), 0, {}};
  switch (field.type) {
    case WireType::kVarint: field.value = varint(); return true;
    case WireType::kFixed64: field.value = little_endian(8); return true;
    case WireType::kFixed32: field.value = little_endian(4); return true;
    case WireType::kBytes: field.bytes = take(varint()); return true;
  }
  throw fail(ErrorKind::kIo, "{}: unsupported wire type {} at byte {}", *name_, key & 7, start);
}

WireReader WireReader::inside(const WireField& field) const {
  return WireReader(field.bytes, *name_, position() - field.bytes.size());
}

void put_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>((value & 0x7f) | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

namespace {

void put_key(std::string& out, uint32_t number, WireType type) {
  put_varint(out, (uint64_t{number} << 3) | static_cast<uint64_t>(type));
}

}  // namespace

void put_varint_field(std::string& out, uint32_t number, uint64_t value) {
  put_key(out, number, WireType::kVarint);
  put_varint(out, value);
}

void put_float_field(std::string& out, uint32_t number, float value) {
  put_key(out, number, WireType::kFixed32);
  const auto bits = std::bit_cast<uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>(bits >> shift));
}

void put_bytes_field(std::string& out, uint32_t number, std::string_view bytes) {
  put_key(out, number, WireType::kBytes);
  put_varint(out, bytes.size());
  out.append(bytes);
}

}  // namespace mt::data
