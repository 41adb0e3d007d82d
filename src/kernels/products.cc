#include "kernels/products.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "base/error.h"
#include "kernels/packed.h"

namespace mt::kernels {
namespace {

using checkpoint::BlockFormat;

std::optional<Format> format_of(const BlockFormat& format) {
  constexpr std::array<std::string_view, kFormats> kNames = {
      "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"};
  for (size_t i = 0; i < kFormats; ++i) {
    if (kNames[i] == format.name) return static_cast<Format>(i);
  }
  return std::nullopt;
}

std::optional<Float> float_of(DType dtype) {
  if (dtype == DType::kF32) return Float::kF32;
  if (dtype == DType::kF16) return Float::kF16;
  if (dtype == DType::kBF16) return Float::kBF16;
  return std::nullopt;
}

// Uninitialised memory on a cache line, for one call.
class Scratch {
 public:
  explicit Scratch(int64_t bytes)
      : memory_(static_cast<std::byte*>(
            ::operator new (static_cast<size_t>(bytes), std::align_val_t{kLine}))) {}
  std::byte* data() const { return memory_.get(); }

 private:
  static constexpr size_t kLine = 64;
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{kLine}); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

// Rows [begin, end) of the matrix numbered `matrix`.
struct Piece {
  size_t matrix;
  int64_t begin, end;
};

// The rows of a call's matrices, cut into pieces that threads take one after the other: enough for
// the last ones to finish together, each some microseconds of reading.
class Pieces {
 public:
  void add(int64_t rows, int64_t row_bytes) {
    matrices_.push_back({rows, row_bytes});
    bytes_ += rows * row_bytes;
  }

  template <typename Body>
  void run(Pool& pool, const Body& body) {
    const int64_t tasks =
        cut(std::clamp(bytes_ / (pool.threads() * kPiecesOfAThread), kLeastBytes, kMostBytes));
    pool.run(tasks, [&](int64_t task, int thread) { body(piece(task), thread); });
  }

 private:
  static constexpr int64_t kPiecesOfAThread = 16, kLeastBytes = 16 << 10, kMostBytes = 256 << 10;
  // Results of a piece fill whole cache lines, so that threads don't write to the same one.
  static constexpr int64_t kLineFloats = 16;

  struct Matrix {
    int64_t rows = 0, row_bytes = 0;
    int64_t step = 0, pieces = 0;
  };

  int64_t cut(int64_t bytes) {
    int64_t all = 0;
    for (Matrix& m : matrices_) {
      const int64_t wanted = std::max<int64_t>(1, bytes / std::max<int64_t>(1, m.row_bytes));
      m.step = (wanted + kLineFloats - 1) / kLineFloats * kLineFloats;
      m.pieces = (m.rows + m.step - 1) / m.step;
      all += m.pieces;
    }
    return all;
  }

  Piece piece(int64_t task) const {
    size_t i = 0;
    for (; task >= matrices_[i].pieces; ++i) task -= matrices_[i].pieces;
    const Matrix& m = matrices_[i];
    return {i, task * m.step, std::min(m.rows, (task + 1) * m.step)};
  }

  std::vector<Matrix> matrices_;
  int64_t bytes_ = 0;
};

void round_to_bf16(const float* in, int64_t count, void* out) {
  auto* bits = static_cast<uint16_t*>(out);
  for (int64_t i = 0; i < count; ++i) bits[i] = BFloat16::from_float(in[i]).bits;
}

void quantise_rows(const KernelTable& table, const float* x, int64_t m, const Activations& rows,
                   int64_t first, int64_t last) {
  for (int64_t i = first; i < std::min(m, last); ++i) table.quantise(x + i * rows.k, rows, i);
  for (int64_t i = std::max(m, first); i < last; ++i) {  // rows that are not there are zeros
    for (int64_t c = 0; c < chunk_count(rows.k); ++c) {
      std::fill_n(rows.q(i, c), kChunk, int16_t{0});
      std::fill_n(rows.scale(i, c), kChunk / 4, 0.0F);
    }
    for (int64_t b = 0; b < block_count(rows.k); ++b) std::fill_n(rows.per_16(i, b), 16, 0.0F);
  }
}

void quantise(const Engine& engine, const float* x, int64_t m, const Activations& rows) {
  constexpr int64_t kRowsOfATask = 16;
  const KernelTable& table = kernels_for(engine.set);
  engine.pool.run((rows.count + kRowsOfATask - 1) / kRowsOfATask, [&](int64_t task, int) {
    const int64_t first = task * kRowsOfATask;
    quantise_rows(table, x, m, rows, first, std::min(rows.count, first + kRowsOfATask));
  });
}

}  // namespace

bool can_multiply(const BlockFormat& format) { return format_of(format).has_value(); }

bool can_dequantise(const BlockFormat& format) {
  return can_multiply(format) || (format.to_float != nullptr && float_of(format.dtype));
}

void dequantise(const Engine& engine, const BlockFormat& format, const void* blocks, int64_t rows,
                int64_t k, DType dtype, void* out) {
  MT_CHECK(can_dequantise(format) && k % format.elements == 0);
  if (k == 0) return;
  const KernelTable& table = kernels_for(engine.set);
  const auto block_format = format_of(format);
  const int64_t row_bytes = k / format.elements * format.bytes;
  const int64_t out_bytes = k * byte_size(dtype);
  // A thread's scratch: the unpacked row, then its values where bfloat16 is wanted.
  const int64_t thread_bytes = Rows::bytes(1, k) + chunk_count(k) * kChunk * 4;
  const Scratch scratch(thread_bytes * engine.pool.threads());
  Pieces pieces;
  pieces.add(rows, row_bytes);
  pieces.run(engine.pool, [&](const Piece& piece, int thread) {
    std::byte* mine = scratch.data() + thread * thread_bytes;
    const Rows row{mine, 1, k};
    auto* wide = reinterpret_cast<float*>(mine + Rows::bytes(1, k));
    for (int64_t n = piece.begin; n < piece.end; ++n) {
      const auto* in = static_cast<const uint8_t*>(blocks) + n * row_bytes;
      auto* to = static_cast<std::byte*>(out) + n * out_bytes;
      float* values = dtype == DType::kF32 ? reinterpret_cast<float*>(to) : wide;
      if (block_format) {
        table.formats[static_cast<size_t>(*block_format)].unpack(in, row, 0);
        table.to_f32(row, has_minimum(*block_format), values);
      } else {
        table.widen[static_cast<size_t>(*float_of(format.dtype))](in, k, values);
      }
      if (dtype == DType::kBF16) round_to_bf16(values, k, to);
    }
  });
}

namespace {

// Some rows of one weight.
struct Task {
  const uint8_t* blocks;
  int64_t rows, row_bytes;
  Format format;
  bool packed;
  Results out;  // of its first row
};

// Rows of x, as far as the weights need them.
struct Inputs {
  int64_t m = 0;
  Activations rows;
  const ActivationStep* steps = nullptr;  // for packed weights
};

// A thread's own memory: rows unpacked, and panels made of them.
struct Workspace {
  Rows unpacked;
  std::byte* panels = nullptr;
  int64_t most_panels = 0;
};

// Panels that fit a core's own cache beside some rows of x.
int64_t panels_together(const KernelTable& table, int64_t k) {
  constexpr int64_t kBytes = 320 << 10;
  return std::max<int64_t>(1, kBytes / (chunk_count(k) * table.panel_chunk_bytes));
}

// Panel rows [n, n + panel_rows) of a task to `panel`.
void prepare(const KernelTable& table, const Task& task, int64_t n, const Workspace& work,
             std::byte* panel) {
  const FormatKernels& kernels = table.formats[static_cast<size_t>(task.format)];
  if (task.packed) {
    const PackedKernels& packed = table.packed[static_cast<size_t>(task.format)];
    return packed.prepare_panel(task.blocks + n * task.row_bytes, work.unpacked.k, panel);
  }
  for (int64_t i = 0; i < table.panel_rows; ++i) {
    const int64_t row = std::min(n + i, task.rows - 1);
    kernels.unpack(task.blocks + row * task.row_bytes, work.unpacked, i);
  }
  table.prepare_panel({work.unpacked, has_minimum(task.format), has_scale_by_16(task.format)},
                      panel);
}

void multiply_panels(const KernelTable& table, const Task& task, const Inputs& x,
                     const Workspace& work) {
  const int64_t lanes = table.panel_rows;
  const int64_t panel_bytes = chunk_count(x.rows.k) * table.panel_chunk_bytes;
  for (int64_t n = 0; n < task.rows; n += work.most_panels * lanes) {
    const int64_t columns = std::min(work.most_panels * lanes, task.rows - n);
    Panels panels{work.panels, 0, has_minimum(task.format), has_scale_by_16(task.format)};
    for (int64_t at = 0; at < columns; at += lanes) {
      prepare(table, task, n + at, work, work.panels + panels.count++ * panel_bytes);
    }
    table.dot_panels(panels, x.rows, {x.m, columns}, {task.out.data + n, task.out.stride});
  }
}

void multiply(const KernelTable& table, const Task& task, const Inputs& x, const Workspace& work) {
  const FormatKernels& kernels = table.formats[static_cast<size_t>(task.format)];
  if (x.m > kFewRows && work.most_panels > 0) return multiply_panels(table, task, x, work);
  if (task.packed) {
    const PackedRows rows{task.blocks, task.rows / kPackedRows, task.row_bytes * kPackedRows,
                          x.rows.k};
    return table.packed[static_cast<size_t>(task.format)].dot(rows, x.steps, x.m, task.out);
  }
  if (x.m <= kFewRows && kernels.dot != nullptr) {
    return kernels.dot({task.blocks, task.rows, task.row_bytes}, x.rows, x.m, task.out);
  }
  for (int64_t n = 0; n < task.rows; ++n) {
    kernels.unpack(task.blocks + n * task.row_bytes, work.unpacked, 0);
    const Results out{task.out.data + n, task.out.stride};
    table.dot_unpacked(work.unpacked, has_minimum(task.format), x.rows, x.m, out);
  }
}

// Memory that the calls of one thread use in turn: new memory would be cleared first each time.
std::byte* scratch_of(int64_t bytes) {
  thread_local std::optional<Scratch> scratch;
  thread_local int64_t size = 0;
  if (size < bytes) {
    scratch.reset();
    scratch.emplace(bytes);
    size = bytes;
  }
  return scratch->data();
}

}  // namespace

bool can_pack(const Engine& engine, const BlockFormat& format, int64_t rows) {
  const auto known = format_of(format);
  return known && rows % kPackedRows == 0 &&
         kernels_for(engine.set).packed[static_cast<size_t>(*known)].dot != nullptr;
}

void pack_rows(const Engine& engine, const BlockFormat& format, const void* blocks, int64_t rows,
               int64_t k, void* out) {
  MT_CHECK(rows % kPackedRows == 0 && k % format.elements == 0);
  const int64_t row_bytes = k / format.elements * format.bytes;
  Pieces pieces;
  pieces.add(rows, row_bytes);
  pieces.run(engine.pool, [&](const Piece& piece, int) {
    for (int64_t n = piece.begin; n < piece.end; n += kPackedRows) {
      pack_panel(*format_of(format), static_cast<const uint8_t*>(blocks) + n * row_bytes, row_bytes,
                 static_cast<uint8_t*>(out) + n * row_bytes);
    }
  });
}

namespace {

// Where a call's activations and its threads' workspaces lie in one piece of memory.
class Layout {
 public:
  Layout(const KernelTable& table, int64_t m, int64_t k, std::span<const QuantisedWeight> weights) {
    const bool panels = m > kFewRows && table.panel_rows > 0;
    const auto is_packed = [](const QuantisedWeight& w) { return w.packed; };
    together_ = panels ? table.panel_rows : 1;
    most_panels_ = panels ? panels_together(table, k) : 0;
    constexpr int64_t kT = Activations::kTogether;
    m_padded_ = m == 1 ? 1 : (m + kT - 1) / kT * kT;
    steps_ = !panels && std::any_of(weights.begin(), weights.end(), is_packed);
    rows_ = panels || !std::all_of(weights.begin(), weights.end(), is_packed);
    if (rows_) x_bytes_ = Activations::bytes(m_padded_, k);
    if (steps_) step_bytes_ = (m * k / 32 * int64_t{sizeof(ActivationStep)} + 63) / 64 * 64;
    unpacked_bytes_ = Rows::bytes(together_, k);
    thread_bytes_ = unpacked_bytes_ + most_panels_ * chunk_count(k) * table.panel_chunk_bytes;
    k_ = k;
  }
  int64_t bytes(int threads) const { return x_bytes_ + step_bytes_ + thread_bytes_ * threads; }

  // x in all forms that are needed.
  Inputs inputs(const Engine& engine, const float* x, int64_t m, std::byte* memory) const {
    Inputs out{m, {memory, m_padded_, k_}, nullptr};
    if (rows_) quantise(engine, x, m, out.rows);
    if (!steps_) return out;
    auto* steps = reinterpret_cast<ActivationStep*>(memory + x_bytes_);
    for (int64_t i = 0; i < m; ++i) {
      kernels_for(engine.set).quantise_packed(x + i * k_, k_, steps + i * (k_ / 32));
    }
    out.steps = steps;
    return out;
  }
  Workspace workspace(int thread, std::byte* memory) const {
    std::byte* mine = memory + x_bytes_ + step_bytes_ + thread * thread_bytes_;
    return {{mine, together_, k_}, mine + unpacked_bytes_, most_panels_};
  }

 private:
  int64_t together_ = 1, most_panels_ = 0, m_padded_ = 1, k_ = 0;
  bool rows_ = true, steps_ = false;
  int64_t x_bytes_ = 0, step_bytes_ = 0, unpacked_bytes_ = 0, thread_bytes_ = 0;
};

}  // namespace

void quantised_matmul(const Engine& engine, const float* x, int64_t m, int64_t k,
                      std::span<const QuantisedWeight> weights) {
  if (k == 0) {
    for (const QuantisedWeight& w : weights) std::fill_n(w.out, m * w.rows, 0.0F);
    return;
  }
  const KernelTable& table = kernels_for(engine.set);
  const Layout layout(table, m, k, weights);
  std::byte* memory = scratch_of(layout.bytes(engine.pool.threads()));
  const Inputs inputs = layout.inputs(engine, x, m, memory);
  const auto row_bytes = [&](const QuantisedWeight& w) {
    return k / w.format->elements * w.format->bytes;
  };
  Pieces pieces;
  for (const QuantisedWeight& w : weights) pieces.add(w.rows, row_bytes(w));
  pieces.run(engine.pool, [&](const Piece& piece, int thread) {
    const QuantisedWeight& w = weights[piece.matrix];
    const Task task{static_cast<const uint8_t*>(w.blocks) + piece.begin * row_bytes(w),
                    piece.end - piece.begin,
                    row_bytes(w),
                    *format_of(*w.format),
                    w.packed,
                    {w.out + piece.begin, w.rows}};
    multiply(table, task, inputs, layout.workspace(thread, memory));
  });
}

void matvec(const Engine& engine, const float* x, int64_t m, int64_t k,
            std::span<const FloatWeight> weights) {
  const KernelTable& table = kernels_for(engine.set);
  Pieces pieces;
  for (const FloatWeight& w : weights) pieces.add(w.rows, k * byte_size(w.dtype));
  pieces.run(engine.pool, [&](const Piece& piece, int) {
    const FloatWeight& w = weights[piece.matrix];
    const auto* values =
        static_cast<const std::byte*>(w.values) + piece.begin * k * byte_size(w.dtype);
    table.matvec[static_cast<size_t>(*float_of(w.dtype))]({values, piece.end - piece.begin, k}, x,
                                                          m, {w.out + piece.begin, w.rows});
  });
}

}  // namespace mt::kernels
