// Weights of Hugging Face and GGUF files, which differ in names and in how norms are stored.
#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "checkpoint/gguf_blocks.h"
#include "models/gemma3/weight_copy.h"
#include "models/gemma3/weight_names.h"
#include "models/gemma3/weight_problems.h"
#include "models/gemma3/weight_sources.h"

namespace mt::models::gemma3 {
namespace {

constexpr int64_t kMostExtraRows = 64;  // image placeholders behind the text vocabulary

bool is_vision(std::string_view name) {
  for (const std::string_view prefix :
       {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
        "model.multi_modal_projector.", "v.", "mm."}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

bool is_head(std::string_view name) {
  return name == "lm_head.weight" || name == "language_model.lm_head.weight" ||
         name == "model.lm_head.weight" || name == "output.weight";
}

class ForeignSource final : public WeightSource {
 public:
  ForeignSource(ReaderPtr reader, ForeignFormat format)
      : reader_(std::move(reader)), format_(std::move(format)) {
    for (const std::string& name : reader_->names()) sort_in(name);
  }

  const std::optional<Gemma3Config>& config() const override { return format_.config; }
  std::vector<SourceNumber> numbers() const override { return format_.numbers; }
  std::string_view kind() const override { return format_.gguf ? "GGUF" : "Hugging Face"; }
  Tensor read(std::string_view name, const Shape& shape, DType want) const override;
  std::optional<StoredMatrix> stored(std::string_view name, const Shape& shape,
                                     std::optional<DType> decoded) const override;
  Tensor read_stored(std::string_view name, const Shape& shape,
                     const StoredMatrix& matrix) const override;
  void read_rows(std::string_view name, const Shape& shape, const StoredMatrix& matrix,
                 const RowSink& sink) const override;
  void check(const std::vector<NamedShape>& expected) const override;

 private:
  void sort_in(const std::string& name);
  Shape stored_shape(const LogicalName& logical, const Shape& shape) const;
  bool shape_fits(const LogicalName& logical, const Shape& expected, const Shape& found) const;
  float embedding_scale(int64_t emb_dim) const;
  void check_heads(WeightProblems& problems) const;
  bool same_values(std::string_view a, std::string_view b) const;

  ReaderPtr reader_;
  ForeignFormat format_;
  std::unordered_map<std::string, std::string> stored_;  // logical name -> the file's
  std::vector<std::string> heads_, unknown_;
  std::vector<std::pair<std::string, std::string>> twice_;
};

void ForeignSource::sort_in(const std::string& name) {
  const auto logical = format_.gguf ? logical_from_gguf(name) : logical_from_hf(name);
  if (logical) {
    const auto [it, fresh] = stored_.emplace(*logical, name);
    if (!fresh) twice_.emplace_back(it->second, name);
  } else if (is_head(name)) {
    heads_.push_back(name);
  } else if (!is_vision(name)) {
    unknown_.push_back(name);
  }
}

// Kernels are stored [out, in], both flattened.
Shape ForeignSource::stored_shape(const LogicalName& logical, const Shape& shape) const {
  if (logical.form != Form::kKernel) return shape;
  const auto middle =
      shape.begin() + std::min<std::ptrdiff_t>(logical.leaf->inputs, std::ssize(shape));
  return {element_count(Shape(middle, shape.end())), element_count(Shape(shape.begin(), middle))};
}

bool ForeignSource::shape_fits(const LogicalName& logical, const Shape& expected,
                               const Shape& found) const {
  if (logical.form != Form::kEmbedding) return expected == found;
  return found.size() == 2 && expected.size() == 2 && found[1] == expected[1] &&
         found[0] >= expected[0] && found[0] - expected[0] <= kMostExtraRows;
}

float ForeignSource::embedding_scale(int64_t emb_dim) const {
  const float exact = static_cast<float>(std::sqrt(static_cast<double>(emb_dim)));
  if (format_.activation == DType::kBF16) return BFloat16::from_float(exact).to_float();
  if (format_.activation == DType::kF16) return Float16::from_float(exact).to_float();
  return exact;
}

Tensor ForeignSource::read(std::string_view name, const Shape& shape, DType want) const {
  const auto logical = parse_logical_name(name);
  const auto it = stored_.find(std::string(name));
  if (!logical || it == stored_.end()) {
    throw fail(ErrorKind::kIo, "{}: no tensor for {}", reader_->path(), name);
  }
  const std::string& source = it->second;
  const Shape expected = stored_shape(*logical, shape);
  const Shape& found = reader_->info(source).shape;
  if (!shape_fits(*logical, expected, found)) {
    throw fail(ErrorKind::kIo, "{}: {} (for {}): expected {}, found {}", reader_->path(), source,
               name, to_string(expected), to_string(found));
  }
  switch (logical->form) {
    case Form::kEmbedding:
      return copy_elements(*reader_, source, shape, want, {embedding_scale(shape[1]), 0});
    case Form::kNorm:
      return copy_elements(*reader_, source, shape, want, {1, format_.gguf ? 0.0F : 1.0F});
    case Form::kKernel: break;
  }
  return copy_transposed(*reader_, source, found[0], found[1], shape, want);
}

std::optional<StoredMatrix> ForeignSource::stored(std::string_view name, const Shape& shape,
                                                  std::optional<DType> decoded) const {
  const auto logical = parse_logical_name(name);
  const auto it = stored_.find(std::string(name));
  if (!logical || it == stored_.end() || logical->form == Form::kNorm) return std::nullopt;
  const checkpoint::TensorInfo& info = reader_->info(it->second);
  const auto* format = checkpoint::find_block_format(info.encoding);
  const Shape expected = stored_shape(*logical, shape);
  if (format == nullptr || !shape_fits(*logical, expected, info.shape)) {
    return std::nullopt;  // read() and check() say why
  }
  StoredMatrix matrix{format->id, info.dtype, expected[0], expected[1]};
  if (!format->quantised()) return stored_as(matrix, info.dtype);
  if (decoded) return stored_as(matrix, *decoded);
  matrix.dtype = DType::kU8;
  matrix.row_bytes = expected[1] / format->elements * format->bytes;
  return matrix;
}

Tensor ForeignSource::read_stored(std::string_view name, const Shape&,
                                  const StoredMatrix& matrix) const {
  const std::string& source = stored_.at(std::string(name));
  const bool blocks = matrix.dtype == DType::kU8;
  auto all = std::make_shared<Tensor>(blocks ? reader_->read_stored(source)
                                             : reader_->read(source).cast(matrix.dtype));
  const Shape shape = matrix.shape();
  const auto bytes = static_cast<size_t>(element_count(shape) * byte_size(matrix.dtype));
  return {matrix.dtype, shape, all->bytes().first(bytes), all};
}

void ForeignSource::read_rows(std::string_view name, const Shape&, const StoredMatrix& matrix,
                              const RowSink& sink) const {
  each_row(*reader_, stored_.at(std::string(name)), matrix.rows, matrix.columns, sink);
}

void ForeignSource::check(const std::vector<NamedShape>& expected) const {
  WeightProblems problems;
  std::set<std::string, std::less<>> wanted;
  for (const NamedShape& weight : expected) {
    wanted.insert(weight.name);
    const auto logical = parse_logical_name(weight.name);
    const auto it = stored_.find(weight.name);
    if (!logical || it == stored_.end()) {
      problems.missing(weight.name);
      continue;
    }
    const checkpoint::TensorInfo& info = reader_->info(it->second);
    const Shape shape = stored_shape(*logical, weight.shape);
    if (!shape_fits(*logical, shape, info.shape)) problems.shape(it->second, shape, info.shape);
    if (!is_float(info.dtype)) {
      problems.other(fmt::format("{} is {}, expected a float type", it->second, info.encoding));
    }
  }
  for (const std::string& name : reader_->names()) {
    const auto logical = format_.gguf ? logical_from_gguf(name) : logical_from_hf(name);
    if (logical && !wanted.contains(*logical)) problems.unexpected(name);
  }
  for (const std::string& name : unknown_) problems.unexpected(name);
  for (const auto& [first, second] : twice_) problems.twice(first, second);
  check_heads(problems);
  problems.throw_if_any(reader_->path());
}

// Gemma 3's head is the embedding; a copy of it is harmless, anything else would be lost.
void ForeignSource::check_heads(WeightProblems& problems) const {
  const auto table = stored_.find(std::string(kEmbeddingName));
  if (table == stored_.end()) return;
  for (const std::string& head : heads_) {
    if (same_values(head, table->second)) continue;
    problems.other(
        fmt::format("{} differs from {}, an untied head is not supported", head, table->second));
  }
}

bool ForeignSource::same_values(std::string_view a, std::string_view b) const {
  const checkpoint::TensorInfo& info = reader_->info(a);
  if (info.shape != reader_->info(b).shape) return false;
  const int64_t row = info.shape.empty() ? 1 : info.shape.back();
  const int64_t size = element_count(info.shape);
  const int64_t step = std::max<int64_t>(1, (int64_t{1} << 20) / std::max<int64_t>(1, row)) * row;
  for (int64_t at = 0; at < size; at += step) {
    std::vector<float> x(static_cast<size_t>(std::min(step, size - at))), y(x.size());
    reader_->read_f32(a, at, x);
    reader_->read_f32(b, at, y);
    if (x != y) return false;
  }
  return true;
}

}  // namespace

std::unique_ptr<WeightSource> make_foreign_source(ReaderPtr reader, ForeignFormat format) {
  return std::make_unique<ForeignSource>(std::move(reader), std::move(format));
}

}  // namespace mt::models::gemma3
