// Weights under MaxText's own names, one tensor a layer or stacked by blocks of six layers.
#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "models/gemma3/weight_copy.h"
#include "models/gemma3/weight_names.h"
#include "models/gemma3/weight_problems.h"
#include "models/gemma3/weight_sources.h"

namespace mt::models::gemma3 {
namespace {

// "params.decoder.layers..." -> "decoder/layers/..."
std::string path_of(std::string name) {
  std::replace(name.begin(), name.end(), '.', '/');
  return name.starts_with("params/") ? name.substr(7) : name;
}

// Where a logical weight lies.
struct Place {
  std::string path;
  int64_t index = -1;  // along the stacked axis (axis 1); -1 if it isn't stacked
};

Shape stack(Shape shape, int64_t count) {
  shape.insert(shape.begin() + 1, count);
  return shape;
}

class MaxTextSource final : public WeightSource {
 public:
  explicit MaxTextSource(ReaderPtr reader) : reader_(std::move(reader)) {
    for (const std::string& name : reader_->names()) {
      const auto [it, fresh] = stored_.emplace(path_of(name), name);
      if (!fresh) twice_.emplace_back(it->second, name);
      if (!it->first.starts_with("decoder/layers/layers_")) continue;
      const Shape& shape = reader_->info(name).shape;
      if (shape.size() > 1) blocks_ = std::max(blocks_, shape[1]);
    }
  }

  const std::optional<Gemma3Config>& config() const override { return config_; }
  std::string_view kind() const override { return "MaxText"; }

  Tensor read(std::string_view name, const Shape& shape, DType want) const override {
    const auto place = find(name, blocks_);
    if (!place) throw fail(ErrorKind::kIo, "{}: no tensor for {}", reader_->path(), name);
    const std::string& source = stored_.at(place->path);
    const Shape expected = place->index < 0 ? shape : stack(shape, blocks_);
    const Shape& found = reader_->info(source).shape;
    if (expected != found) {
      throw fail(ErrorKind::kIo, "{}: {} (for {}): expected {}, found {}", reader_->path(), source,
                 name, to_string(expected), to_string(found));
    }
    if (place->index < 0) return copy_elements(*reader_, source, shape, want);
    return copy_stacked(*reader_, source, shape, blocks_, place->index, want);
  }

  std::optional<StoredMatrix> stored(std::string_view name, const Shape& shape,
                                     std::optional<DType> decoded) const override;
  Tensor read_stored(std::string_view name, const Shape& shape,
                     const StoredMatrix& matrix) const override;
  void read_rows(std::string_view name, const Shape& shape, const StoredMatrix& matrix,
                 const RowSink& sink) const override;
  void check(const std::vector<NamedShape>& expected) const override;

 private:
  std::optional<Place> find(std::string_view name, int64_t blocks) const;

  ReaderPtr reader_;
  std::optional<Gemma3Config> config_;
  std::unordered_map<std::string, std::string> stored_;  // path -> the file's name
  std::vector<std::pair<std::string, std::string>> twice_;
  int64_t blocks_ = 0;  // of six layers, as stacked in the file
};

std::optional<Place> MaxTextSource::find(std::string_view name, int64_t blocks) const {
  if (stored_.contains(std::string(name))) return Place{std::string(name), -1};
  const auto logical = parse_logical_name(name);
  if (!logical || logical->layer < 0) return std::nullopt;
  const int64_t stacked = blocks * kPattern;
  Place place;
  if (logical->layer < stacked) {
    place = {fmt::format("decoder/layers/layers_{}/{}", logical->layer % kPattern,
                         logical->leaf->maxtext),
             logical->layer / kPattern};
  } else {
    place.path = fmt::format("decoder/layers_remainder/layers_{}/{}", logical->layer - stacked,
                             logical->leaf->maxtext);
  }
  if (!stored_.contains(place.path)) return std::nullopt;
  return place;
}

// MaxText's kernels are [in, out], so they are transposed as they are read.
std::optional<StoredMatrix> MaxTextSource::stored(std::string_view name, const Shape& shape,
                                                  std::optional<DType>) const {
  const auto logical = parse_logical_name(name);
  const auto place = find(name, blocks_);
  if (!logical || !place || logical->form == Form::kNorm) return std::nullopt;
  StoredMatrix matrix;
  if (logical->form == Form::kEmbedding) {
    matrix.rows = shape[0];
    matrix.columns = shape[1];
    matrix.multiplied = true;
  } else {
    const auto outputs = shape.begin() + logical->leaf->inputs;
    matrix.columns = element_count(Shape(shape.begin(), outputs));
    matrix.rows = element_count(Shape(outputs, shape.end()));
  }
  return stored_as(matrix, reader_->info(stored_.at(place->path)).dtype);
}

Tensor MaxTextSource::read_stored(std::string_view name, const Shape& shape,
                                  const StoredMatrix& matrix) const {
  const Tensor found = read(name, shape, matrix.dtype);
  if (matrix.multiplied) return found;
  return found.reshape({matrix.columns, matrix.rows}).transpose({1, 0});
}

void MaxTextSource::read_rows(std::string_view name, const Shape& shape, const StoredMatrix& matrix,
                              const RowSink& sink) const {
  if (matrix.multiplied) {
    return each_row(*reader_, stored_.at(find(name, blocks_)->path), matrix.rows, matrix.columns,
                    sink);
  }
  each_row_of_transpose(read(name, shape, DType::kF32), matrix.rows, matrix.columns, sink);
}

void MaxTextSource::check(const std::vector<NamedShape>& expected) const {
  WeightProblems problems;
  int64_t layers = 0;
  for (const NamedShape& weight : expected) {
    const auto logical = parse_logical_name(weight.name);
    if (logical) layers = std::max(layers, logical->layer + 1);
  }
  const int64_t blocks = layers / kPattern;
  std::set<std::string> used, reported;
  for (const NamedShape& weight : expected) {
    const auto place = find(weight.name, blocks);
    if (!place) {
      problems.missing(weight.name);
      continue;
    }
    used.insert(place->path);
    const std::string& source = stored_.at(place->path);
    const checkpoint::TensorInfo& info = reader_->info(source);
    const Shape shape = place->index < 0 ? weight.shape : stack(weight.shape, blocks);
    const bool fits = shape == info.shape && is_float(info.dtype);
    if (fits || !reported.insert(source).second) continue;  // a stacked tensor is met once a block
    if (shape != info.shape) problems.shape(source, shape, info.shape);
    if (!is_float(info.dtype)) {
      problems.other(fmt::format("{} is {}, expected a float type", source, info.encoding));
    }
  }
  for (const std::string& name : reader_->names()) {
    if (!used.contains(path_of(name))) problems.unexpected(name);
  }
  for (const auto& [first, second] : twice_) problems.twice(first, second);
  problems.throw_if_any(reader_->path());
}

}  // namespace

bool has_maxtext_names(const checkpoint::TensorReader& reader) {
  return std::any_of(reader.names().begin(), reader.names().end(),
                     [](const std::string& name) { return path_of(name) == kEmbeddingName; });
}

std::unique_ptr<WeightSource> make_maxtext_source(ReaderPtr reader) {
  return std::make_unique<MaxTextSource>(std::move(reader));
}

}  // namespace mt::models::gemma3
