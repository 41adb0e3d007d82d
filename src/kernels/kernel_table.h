// What one instruction set offers: loops over rows, called by the drivers in products.cc.
//
// A weight's row of K values becomes 8-bit integers q, the scale that 4 of them (one 32-bit lane of
// an integer product) share, and one more number for each 16. An activation's row becomes 16-bit
// integers with a scale for each 32. With w a weight's row and x an activation's,
//   dot(w, x) = sum over lanes:         w.scale * x.scale * (sum of the lane's 4 products)
//             + sum over groups of 16:  w.per_16 * x.per_16
// where w.per_16 is the minimum that the group's values have in common (read only where the format
// has one) and x.per_16 the group's sum.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace mt::kernels {

// The functions here are always inlined: a copy of one that was compiled for a newer processor must
// not be what the linker keeps for all.

constexpr int64_t kChunk = 64;   // values: 64 bytes of q, then their 16 scales
constexpr int64_t kBlock = 256;  // values with 16 numbers per_16
[[gnu::always_inline]] constexpr int64_t chunk_count(int64_t k) {
  return (k + kChunk - 1) / kChunk;
}
[[gnu::always_inline]] constexpr int64_t block_count(int64_t k) {
  return (k + kBlock - 1) / kBlock;
}

// `count` rows of a weight, interleaved by chunk so that a loop over them has one pointer. What
// scales and per_16 hold beyond k must be finite. On a cache line.
struct Rows {
  std::byte* memory = nullptr;
  int64_t count = 0;
  int64_t k = 0;

  [[gnu::always_inline]] uint8_t* q(int64_t row, int64_t chunk) const {
    return reinterpret_cast<uint8_t*>(memory + (chunk * count + row) * 2 * kChunk);
  }
  [[gnu::always_inline]] float* scale(int64_t row, int64_t chunk) const {
    return reinterpret_cast<float*>(memory + (chunk * count + row) * 2 * kChunk + kChunk);
  }
  [[gnu::always_inline]] float* per_16(int64_t row, int64_t block) const {
    std::byte* start = memory + chunk_count(k) * count * 2 * kChunk;
    return reinterpret_cast<float*>(start) + (block * count + row) * 16;
  }
  [[gnu::always_inline]] static constexpr int64_t bytes(int64_t count, int64_t k) {
    return count * (chunk_count(k) * 2 * kChunk + block_count(k) * 64);
  }
};

// `count` rows of activations, a multiple of kTogether of which lie side by side, chunk after
// chunk: what a loop over some rows reads is in one piece. A chunk's values of even index come
// first, then those of odd index: as a register of weights' bytes falls into 16-bit numbers by
// shifts alone. Scales and per_16 are 0 beyond k. On a cache line.
struct Activations {
  std::byte* memory = nullptr;
  int64_t count = 0;  // a multiple of kTogether, or 1
  int64_t k = 0;

  static constexpr int64_t kTogether = 4;
  static constexpr int64_t kChunkBytes = 3 * kChunk;
  static constexpr int64_t kOdd = kChunk / 2;  // where the odd ones begin

  [[gnu::always_inline]] int64_t together() const { return count < kTogether ? count : kTogether; }
  [[gnu::always_inline]] int64_t place(int64_t row, int64_t piece, int64_t pieces) const {
    const int64_t t = together();
    return (row / t * pieces + piece) * t + row % t;
  }
  [[gnu::always_inline]] std::byte* chunk(int64_t row, int64_t c) const {
    return memory + place(row, c, chunk_count(k)) * kChunkBytes;
  }
  [[gnu::always_inline]] int16_t* q(int64_t row, int64_t c) const {
    return reinterpret_cast<int16_t*>(chunk(row, c));
  }
  [[gnu::always_inline]] float* scale(int64_t row, int64_t c) const {
    return reinterpret_cast<float*>(chunk(row, c) + 2 * kChunk);
  }
  [[gnu::always_inline]] float* per_16(int64_t row, int64_t block) const {
    std::byte* start = memory + chunk_count(k) * count * kChunkBytes;
    return reinterpret_cast<float*>(start) + place(row, block, block_count(k)) * 16;
  }
  [[gnu::always_inline]] static constexpr int64_t bytes(int64_t count, int64_t k) {
    return count * (chunk_count(k) * kChunkBytes + block_count(k) * 64);
  }
};

// The largest integer of an activation: its two bytes, the low one signed, are at most 127 each.
constexpr float kLargestActivation = 127 * 256 + 127;

// 32 activations as packed rows (packed.h) meet them.
struct alignas(32) ActivationStep {
  std::byte
      integers[64];  // of 16 bits, in the order in which the instruction set's loop reads them
  float scale;
  int32_t minus_sum[3];  // of the integers: of the first 16, the others, all; negative
  float sum[2];          // of the first 16 and the others, times the scale
  float unused[2];
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
[[gnu::always_inline]] constexpr bool has_minimum(Format f) {
  return f == Format::kQ4_1 || f == Format::kQ5_1 || f == Format::kQ2_K || f == Format::kQ4_K ||
         f == Format::kQ5_K;
}

constexpr bool has_scale_by_16(Format f) {
  return f == Format::kQ2_K || f == Format::kQ3_K || f == Format::kQ6_K;
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
  // One row of blocks of out.k values to a row of `out`.
  void (*unpack)(const uint8_t* blocks, Rows out, int64_t row) = nullptr;
  // Rows times the first `m` rows of x, straight from the blocks; null if unpacking first is as
  // good. A result does not depend on m.
  void (*dot)(BlockRows w, Activations x, int64_t m, Results out) = nullptr;
};

// Weight rows in panels of kPackedRows (packed.h).
struct PackedRows {
  const uint8_t* data = nullptr;
  int64_t panels = 0;
  int64_t panel_bytes = 0;
  int64_t k = 0;
};

struct PackedKernels {
  // Panels times `m` rows of activations, each of k / 32 steps. A result does not depend on m.
  void (*dot)(PackedRows w, const ActivationStep* x, int64_t m, Results out) = nullptr;
  // KernelTable::prepare_panel's, straight from a packed panel.
  void (*prepare_panel)(const uint8_t* packed, int64_t k, std::byte* panel) = nullptr;
};

struct Extent {
  int64_t rows = 0, columns = 0;
};

// Weight rows that become a panel, a row to a lane of the registers.
struct UnpackedRows {
  Rows w;  // panel_rows of them, the last ones perhaps repeated
  bool minimum = false;
  bool by_16 = false;  // 16 values have a scale of their own, not 32
};
struct Panels {  // one after the other
  const std::byte* data = nullptr;
  int64_t count = 0;
  bool minimum = false, by_16 = false;
};

// So many rows of x give the same results together as alone, whatever the format.
constexpr int64_t kFewRows = 8;

enum class Float : uint8_t { kF32, kF16, kBF16, kS8 };  // kS8: of caches only, with a scale a row
constexpr size_t kFloats = 3, kCacheTypes = 4;

struct FloatRows {
  const void* data = nullptr;
  int64_t count = 0;
  int64_t k = 0;
};

// Some entries of one head of a cache: keys and values [count, head_dim], of a Float type.
struct CacheEntries {
  const void* keys = nullptr;
  const void* values = nullptr;
  const float* key_scale = nullptr;  // [count], of kS8 only
  const float* value_scale = nullptr;
  int64_t count = 0;
  int64_t head_dim = 0;
};
constexpr int64_t kMostEntries = 256;

// Softmax attention over some entries, yet to be joined with that over others: for each query head
// the largest score, the sum of e^(score - max), and the values weighted so, [heads, head_dim].
struct PartialAttention {
  float* max = nullptr;
  float* sum = nullptr;
  float* context = nullptr;
};

// Several queries of one head of a cache at once, over keys in the order of their positions. A row
// is one token's query head; rows are a multiple of kRowsOfQ.
constexpr int64_t kRowsOfQ = 8;
struct AttentionBlock {
  const float* keys = nullptr;  // tiles of `lanes` keys, each [head_dim, lanes]; the last ones full
  const float* values = nullptr;  // [keys, head_dim]
  const float* q = nullptr;       // groups of kRowsOfQ rows, each [head_dim, kRowsOfQ]
  int64_t rows = 0;
  int64_t head_dim = 0;
  int64_t begin = 0, end = 0;          // keys that some row sees
  const int64_t* row_begin = nullptr;  // [rows]: those that each row sees
  const int64_t* row_end = nullptr;
  float* scores = nullptr;   // [rows, kMostEntries], to work with
  float* max = nullptr;      // [rows], begins as -infinity
  float* sum = nullptr;      // [rows], begins as 0
  float* context = nullptr;  // [rows, head_dim], begins as 0; to be divided by the sums
};

struct AttentionKernels {
  int64_t lanes = 1;  // head_dim must be a multiple of this
  std::array<void (*)(const CacheEntries& e, const float* q, int64_t heads, PartialAttention out),
             kCacheTypes>
      attend{};  // by Float
  void (*attend_block)(const AttentionBlock& block) = nullptr;
};

// The first of the largest of some numbers, and the sum of e^(x - largest); NaN if any is not
// finite.
struct Largest {
  float value = 0;
  int64_t index = 0;
  float sum = 0;
};

struct NormRow {  // norm.h's Norm, a row of it
  const float* x = nullptr;
  const float* scale = nullptr;
  int64_t size = 0;
  float epsilon = 0;
  const float* cos = nullptr;
  const float* sin = nullptr;
  float factor = 1;
  float* out = nullptr;
};

struct KernelTable {
  void (*quantise)(const float* x, Activations out, int64_t row) = nullptr;
  std::array<FormatKernels, kFormats> formats;  // by Format
  // One unpacked weight row times the first `m` rows of x.
  void (*dot_unpacked)(Rows w, bool minimum, Activations x, int64_t m, Results out) = nullptr;
  // Panels of panel_rows weight rows, made ready once and multiplied with all rows of x. 0: there
  // is no such loop. A panel takes panel_chunk_bytes a chunk, on a cache line.
  int64_t panel_rows = 0;
  int64_t panel_chunk_bytes = 0;
  void (*prepare_panel)(const UnpackedRows& rows, std::byte* panel) = nullptr;
  void (*dot_panels)(const Panels& panels, Activations x, Extent wanted, Results out) = nullptr;
  // Packed rows, by Format; null where the set has no such loops.
  std::array<PackedKernels, kFormats> packed{};
  void (*quantise_packed)(const float* x, int64_t k, ActivationStep* out) = nullptr;
  // The values of an unpacked weight row.
  void (*to_f32)(Rows w, bool minimum, float* out) = nullptr;
  std::array<void (*)(const void* in, int64_t k, float* out), kFloats> widen{};  // by Float
  // Rows times x[m, k].
  std::array<void (*)(FloatRows w, const float* x, int64_t m, Results out), kFloats> matvec{};
  AttentionKernels attention;
  void (*norm)(const NormRow& row) = nullptr;
  Largest (*largest)(const float* x, int64_t count) = nullptr;  // count of at least 1
};

}  // namespace mt::kernels
