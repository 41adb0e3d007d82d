#include "base/dtype.h"

#include <array>
#include <cmath>

#include "base/error.h"

namespace mt {
namespace {

struct Row {
  DType dtype;
  int64_t bytes;
  std::string_view name, mlir;
};

constexpr std::array<Row, 11> kRows{{
    {DType::kPred, 1, "bool", "i1"},
    {DType::kS8, 1, "int8", "i8"},
    {DType::kS32, 4, "int32", "i32"},
    {DType::kS64, 8, "int64", "i64"},
    {DType::kU8, 1, "uint8", "ui8"},
    {DType::kU32, 4, "uint32", "ui32"},
    {DType::kU64, 8, "uint64", "ui64"},
    {DType::kF16, 2, "float16", "f16"},
    {DType::kBF16, 2, "bfloat16", "bf16"},
    {DType::kF32, 4, "float32", "f32"},
    {DType::kF64, 8, "float64", "f64"},
}};

const Row& row(DType dtype) { return kRows[static_cast<size_t>(dtype)]; }

}  // namespace

int64_t byte_size(DType dtype) { return row(dtype).bytes; }
bool is_float(DType dtype) { return dtype >= DType::kF16; }
bool is_integer(DType dtype) { return dtype >= DType::kS8 && dtype <= DType::kU64; }
std::string_view name(DType dtype) { return row(dtype).name; }
std::string_view mlir_name(DType dtype) { return row(dtype).mlir; }

std::optional<DType> parse_dtype(std::string_view text) {
  for (const Row& r : kRows) {
    if (r.name == text) return r.dtype;
  }
  return std::nullopt;
}

Float16 Float16::from_float(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>((u >> 16) & 0x8000U);
  const uint32_t magnitude = u & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return {static_cast<uint16_t>(sign | 0x7e00U)};
  if (magnitude >= 0x477ff000U) return {static_cast<uint16_t>(sign | 0x7c00U)};  // rounds to inf
  if (magnitude < 0x38800000U) {  // subnormal: units of 2^-24, ties to even
    const float scaled = std::bit_cast<float>(magnitude) * 16777216.0F;
    return {static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(scaled)))};
  }
  const uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000U) >> 13))};
}

float Float16::to_float() const {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fU, mantissa = bits & 0x3ffU;
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  const uint32_t widened = exponent == 31 ? 0x7f800000U : (exponent + 112U) << 23;
  return std::bit_cast<float>(sign | widened | (mantissa << 13));
}

}  // namespace mt
