#include "models/gemma3/weights_quantised.h"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/gguf_blocks.h"
#include "models/gemma3/weight_names.h"
#include "models/gemma3/weight_sources.h"

namespace mt::models::gemma3 {
namespace {

using checkpoint::BlockFormat;

// How much of the work is done, said every few seconds.
class Progress final {
 public:
  Progress(std::string what, double total) : what_(std::move(what)), total_(total) {}
  void add(double count) {
    done_ += count;
    const auto now = Clock::now();
    if (now - said_ < std::chrono::seconds(5) || done_ >= total_) return;
    said_ = now;
    log_line("Quantising to {}: {:.0f} of {:.0f} million values.", what_, done_ / 1e6,
             total_ / 1e6);
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  double total_ = 0, done_ = 0;
  Clock::time_point said_ = Clock::now();
};

// Memory that a device can read in place, not zeroed.
std::shared_ptr<std::byte> allocate(size_t bytes) {
  constexpr size_t kLine = 64;
  auto* memory =
      static_cast<std::byte*>(std::aligned_alloc(kLine, (bytes + kLine - 1) / kLine * kLine));
  if (memory == nullptr) throw std::bad_alloc();
  return {memory, std::free};
}

class QuantisedSource final : public WeightSource {
 public:
  QuantisedSource(std::unique_ptr<WeightSource> source, QuantiseOptions options, double total)
      : source_(std::move(source)),
        options_(std::move(options)),
        progress_(std::string(name(options_.to)), total) {}

  const std::optional<Gemma3Config>& config() const override { return source_->config(); }
  std::vector<SourceNumber> numbers() const override { return source_->numbers(); }
  std::string_view kind() const override { return source_->kind(); }
  Tensor read(std::string_view weight, const Shape& shape, DType want) const override {
    return source_->read(weight, shape, want);
  }
  void check(const std::vector<NamedShape>& expected) const override { source_->check(expected); }
  std::optional<StoredMatrix> stored(std::string_view weight, const Shape& shape,
                                     std::optional<DType> decoded) const override;
  Tensor read_stored(std::string_view weight, const Shape& shape,
                     const StoredMatrix& matrix) const override;
  void read_rows(std::string_view weight, const Shape& shape, const StoredMatrix& matrix,
                 const RowSink& sink) const override;

 private:
  std::unique_ptr<WeightSource> source_;
  QuantiseOptions options_;
  mutable Progress progress_;  // reading is logically const
};

std::optional<StoredMatrix> QuantisedSource::stored(std::string_view weight, const Shape& shape,
                                                    std::optional<DType>) const {
  auto matrix = source_->stored(weight, shape, DType::kF32);
  if (!matrix) return std::nullopt;
  const bool narrow = options_.to == Quantization::kInt4 && weight != kEmbeddingName;
  const auto* format = checkpoint::find_block_format(std::string_view(narrow ? "Q4_0" : "Q8_0"));
  matrix->multiplied = false;
  if (matrix->columns % format->elements != 0) return stored_as(*matrix, DType::kF32);
  matrix->block_type = format->id;
  matrix->dtype = DType::kU8;
  matrix->row_bytes = matrix->columns / format->elements * format->bytes;
  return matrix;
}

// As GGUF has them: a table that the source multiplied is divided again.
void QuantisedSource::read_rows(std::string_view weight, const Shape& shape,
                                const StoredMatrix& matrix, const RowSink& sink) const {
  const StoredMatrix floats = source_->stored(weight, shape, DType::kF32).value();
  if (!floats.multiplied) return source_->read_rows(weight, shape, floats, sink);
  const auto divisor = static_cast<float>(std::sqrt(static_cast<double>(matrix.columns)));
  source_->read_rows(weight, shape, floats, [&](int64_t first, std::span<const float> rows) {
    std::vector<float> divided(rows.begin(), rows.end());
    for (float& x : divided) x /= divisor;
    sink(first, divided);
  });
}

Tensor QuantisedSource::read_stored(std::string_view weight, const Shape& shape,
                                    const StoredMatrix& matrix) const {
  const auto* format = checkpoint::find_block_format(static_cast<uint32_t>(matrix.block_type));
  const int64_t row_bytes =
      matrix.dtype == DType::kU8 ? matrix.row_bytes : matrix.columns * byte_size(matrix.dtype);
  const auto bytes = static_cast<size_t>(matrix.rows * row_bytes);
  const auto memory = allocate(bytes);
  read_rows(weight, shape, matrix, [&](int64_t first, std::span<const float> rows) {
    std::byte* out = memory.get() + first * row_bytes;
    if (format->from_float == nullptr) {
      std::memcpy(out, rows.data(), rows.size_bytes());
      return;
    }
    const auto count = static_cast<int64_t>(rows.size());
    if (format->from_float(rows.data(), count / format->elements, out)) return;
    throw fail(ErrorKind::kIo, "{}: {}: a value that is not finite, or too large for blocks of {}",
               options_.path, weight, format->name);
  });
  progress_.add(static_cast<double>(matrix.rows) * static_cast<double>(matrix.columns));
  return {matrix.dtype, matrix.shape(), {memory.get(), bytes}, memory};
}

}  // namespace

std::optional<Quantization> parse_quantization(std::string_view text) {
  if (text == "int8") return Quantization::kInt8;
  if (text == "int4") return Quantization::kInt4;
  return std::nullopt;
}

std::string_view name(Quantization quantization) {
  return quantization == Quantization::kInt8 ? "int8" : "int4";
}

std::unique_ptr<WeightSource> quantised(std::unique_ptr<WeightSource> source,
                                        const Gemma3Config& config, QuantiseOptions options) {
  double total = 0;
  for (const NamedShape& weight : weight_shapes(config)) {
    const auto matrix = source->stored(weight.name, weight.shape, std::nullopt);
    if (!matrix) continue;
    total += static_cast<double>(matrix->rows) * static_cast<double>(matrix->columns);
    if (options.decode || matrix->dtype != DType::kU8) continue;
    throw fail(ErrorKind::kConfig,
               "{}: quantised already ({} is in blocks of {}), and quantization={} is for floats; "
               "with dequantize_weights=true its blocks are decoded first",
               options.path, weight.name,
               checkpoint::find_block_format(static_cast<uint32_t>(matrix->block_type))->name,
               name(options.to));
  }
  return std::make_unique<QuantisedSource>(std::move(source), std::move(options), total);
}

}  // namespace mt::models::gemma3
