// Element types and the two 16-bit float formats.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace mt {

enum class DType : uint8_t { kPred, kS8, kS32, kS64, kU8, kU32, kU64, kF16, kBF16, kF32, kF64 };

int64_t byte_size(DType dtype);  // bytes per element
bool is_float(DType dtype);
bool is_integer(DType dtype);        // pred is neither
std::string_view name(DType dtype);  // MaxText's and numpy's names: "bfloat16", "int32", "bool"
std::string_view mlir_name(DType dtype);                  // "bf16", "i32", "ui32", "i1"
std::optional<DType> parse_dtype(std::string_view text);  // accepts name() forms

// bfloat16: the upper half of a float32; from_float rounds to nearest even, NaN stays NaN.
struct BFloat16 {
  uint16_t bits = 0;
  static BFloat16 from_float(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    if ((u & 0x7fffffffU) > 0x7f800000U) return {static_cast<uint16_t>((u >> 16) | 0x40U)};
    return {static_cast<uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16)};
  }
  float to_float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

// IEEE binary16; from_float rounds to nearest even.
struct Float16 {
  uint16_t bits = 0;
  static Float16 from_float(float x);
  float to_float() const;
};

}  // namespace mt
