// What one instruction set offers: loops over rows, called by the drivers in products.cc.
//
// A weight or an activation row of K values is unpacked to a Row: 8-bit integers, the scale that
// 4 of them (one 32-bit lane of an integer product) share, and one more number for each 16. With w
// a weight's and x an activation's Row,
//   dot(w, x) = sum over lanes i: w.scale[i] * x.scale[i] * (integer product of the lane's values)
//             + sum over groups g of 16: w.per_16[g] * x.per_16[g]
// where w.per_16 is the minimum that the group's values have in common (0 for formats without one)
// and x.per_16 the group's sum. How x's integers are stored is the instruction set's own matter.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace mt::kernels {

struct Row {
  uint8_t* q = nullptr;
  float* scale = nullptr;   // one for 4 values
  float* per_16 = nullptr;  // one for 16 values
};

// Rows are padded with zeros so that loops need no remainder: q and scale to whole chunks, per_16
// to whole registers. Every part starts on a cache line.
constexpr int64_t kChunk = 64;
constexpr int64_t chunk_count(int64_t k) { return (k + kChunk - 1) / kChunk; }
constexpr int64_t group_count(int64_t k) { return (chunk_count(k) * 4 + 15) / 16 * 16; }
constexpr int64_t row_size(int64_t k) {
  return chunk_count(k) * 2 * kChunk + group_count(k) * static_cast<int64_t>(sizeof(float));
}
inline Row row_at(std::byte* memory, int64_t k) {
  std::byte* scale = memory + chunk_count(k) * kChunk;
  return {reinterpret_cast<uint8_t*>(memory), reinterpret_cast<float*>(scale),
          reinterpret_cast<float*>(scale + chunk_count(k) * kChunk)};
}

// Several rows of activations, one after the other.
struct Rows {
  std::byte* memory = nullptr;
  int64_t count = 0;
  int64_t k = 0;
  Row operator[](int64_t m) const { return row_at(memory + m * row_size(k), k); }
};

// The block formats of checkpoint/gguf_blocks.h that products take.
enum class Format : uint8_t {
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K
};
constexpr size_t kFormats = 10;
constexpr bool has_minimum(Format f) {
  return f == Format::kQ4_1 || f == Format::kQ5_1 || f == Format::kQ2_K || f == Format::kQ4_K ||
         f == Format::kQ5_K;
}

// Row-major results: element (m, n) is at data[m * stride + n].
struct Results {
  float* data = nullptr;
  int64_t stride = 0;
};

struct BlockRows {
  const uint8_t* data = nullptr;
  int64_t count = 0;
  int64_t bytes = 0;  // of a row
};

struct FormatKernels {
  // One row of blocks to a Row (padding included).
  void (*unpack)(const uint8_t* blocks, int64_t k, Row out) = nullptr;
  // Rows times one activation row, straight from the blocks; null if nothing beats unpacking first.
  void (*dot)(BlockRows w, int64_t k, Row x, float* out) = nullptr;
};

enum class Float : uint8_t { kF32, kF16, kBF16 };

struct FloatRows {
  const void* data = nullptr;
  int64_t count = 0;
  int64_t k = 0;
};

struct KernelTable {
  void (*quantise)(const float* x, int64_t k, Row out) = nullptr;
  std::array<FormatKernels, kFormats> formats;  // by Format
  // One unpacked weight row times all rows of x.
  void (*dot_unpacked)(Row w, bool minimum, Rows x, Results out) = nullptr;
  // The values of an unpacked weight row, k of them.
  void (*to_f32)(Row w, bool minimum, int64_t k, float* out) = nullptr;
  std::array<void (*)(const void* in, int64_t k, float* out), 3> widen{};  // by Float
  // Rows times x[m, k].
  std::array<void (*)(FloatRows w, const float* x, int64_t m, Results out), 3> matvec{};
};

}  // namespace mt::kernels
