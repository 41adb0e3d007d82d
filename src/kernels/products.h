// The kernels as plain functions, on all threads of a pool: what the FFI handlers call. Shapes are
// the caller's promise (kernels.h has them; the handlers check).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "checkpoint/gguf_blocks.h"
#include "kernels/instruction_set.h"
#include "kernels/pool.h"

namespace mt::kernels {

struct Engine {  // what a kernel runs on
  Pool& pool = shared_pool();
  InstructionSet set = best_instruction_set();
};

bool can_dequantise(const checkpoint::BlockFormat& format);
bool can_multiply(const checkpoint::BlockFormat& format);

// `dtype` of out[rows, k] is kF32 or kBF16; k is a multiple of the format's elements.
void dequantise(const Engine& engine, const checkpoint::BlockFormat& format, const void* blocks,
                int64_t rows, int64_t k, DType dtype, void* out);

struct QuantisedWeight {
  const checkpoint::BlockFormat* format = nullptr;
  const void* blocks = nullptr;
  int64_t rows = 0;
  float* out = nullptr;  // [m, rows]
  bool packed = false;   // by pack_rows
};
// x[m, k] times each weight's transpose.
void quantised_matmul(const Engine& engine, const float* x, int64_t m, int64_t k,
                      std::span<const QuantisedWeight> weights);

// Whether products with this many rows are faster when they are packed (packed.h): this instruction
// set has the loops, and the rows fill panels.
bool can_pack(const Engine& engine, const checkpoint::BlockFormat& format, int64_t rows);
// The blocks of `rows` rows of k columns to as many bytes at `out`, packed.
void pack_rows(const Engine& engine, const checkpoint::BlockFormat& format, const void* blocks,
               int64_t rows, int64_t k, void* out);

struct FloatWeight {
  DType dtype = DType::kF32;  // or kF16, kBF16
  const void* values = nullptr;
  int64_t rows = 0;
  float* out = nullptr;  // [m, rows]
};
void matvec(const Engine& engine, const float* x, int64_t m, int64_t k,
            std::span<const FloatWeight> weights);

}  // namespace mt::kernels
