#include "data/batch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "data/pipeline.h"

namespace mt::data {
namespace {

Batch empty_batch(int64_t rows, int64_t length) {
  const auto tensor = [&] { return Tensor(DType::kS32, {rows, length}); };
  return {tensor(), tensor(), tensor(), tensor(), tensor(), tensor(), 0, 0};
}

void copy_row(Tensor& tensor, int64_t row, const std::vector<int32_t>& values) {
  const auto at = static_cast<size_t>(row) * values.size();
  std::memcpy(tensor.mutable_data<int32_t>().data() + at, values.data(),
              values.size() * sizeof(int32_t));
}

}  // namespace

BatchSizes global_batch_sizes(int64_t devices, double per_device_batch_size,
                              int64_t gradient_accumulation_steps) {
  const auto rows = static_cast<double>(devices) * per_device_batch_size;
  if (!std::isfinite(rows) || rows > 1e9) {
    throw fail(ErrorKind::kConfig, "per_device_batch_size={} is not a batch size",
               per_device_batch_size);
  }
  const auto micro = static_cast<int64_t>(std::llround(rows));
  // MaxText cuts the rest off and counts it as trained on all the same.
  if (micro >= 1 && std::abs(rows - static_cast<double>(micro)) > 1e-6 * rows) {
    throw fail(ErrorKind::kConfig,
               "per_device_batch_size={} on {} devices makes {} sequences: not a whole number",
               per_device_batch_size, devices, rows);
  }
  if (micro < 1 || gradient_accumulation_steps < 1) {
    throw fail(ErrorKind::kConfig,
               "per_device_batch_size={} on {} devices with gradient_accumulation_steps={} leaves "
               "no row to train on",
               per_device_batch_size, devices, gradient_accumulation_steps);
  }
  if (gradient_accumulation_steps > (int64_t{1} << 31) / std::max(micro, devices)) {
    throw fail(ErrorKind::kConfig,
               "gradient_accumulation_steps={} of {} sequences each: more than 2^31 a step",
               gradient_accumulation_steps, micro);
  }
  const int64_t loaded = per_device_batch_size < 1 ? devices : micro;
  return {loaded * gradient_accumulation_steps, micro * gradient_accumulation_steps};
}

Batch synthetic_batch(int64_t rows, int64_t length, int64_t vocab_size, uint64_t seed) {
  Batch batch = empty_batch(rows, length);
  const RandomKey key = random_key(seed);
  const auto token = [&](int64_t row, int64_t column) {
    const uint32_t bits = random_bits_at(key, static_cast<uint64_t>(row * (length + 1) + column));
    return static_cast<int32_t>(bits % static_cast<uint64_t>(vocab_size));
  };
  auto inputs = batch.inputs.mutable_data<int32_t>();
  auto targets = batch.targets.mutable_data<int32_t>();
  auto inputs_position = batch.inputs_position.mutable_data<int32_t>();
  auto targets_position = batch.targets_position.mutable_data<int32_t>();
  size_t at = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < length; ++column, ++at) {
      inputs[at] = column == 0 ? token(row, 0) : targets[at - 1];
      targets[at] = token(row, column + 1);
      inputs_position[at] = static_cast<int32_t>(column);
      targets_position[at] = static_cast<int32_t>(column + 1);
    }
  }
  for (int32_t& one : batch.inputs_segmentation.mutable_data<int32_t>()) one = 1;
  for (int32_t& one : batch.targets_segmentation.mutable_data<int32_t>()) one = 1;
  batch.rows = rows;
  batch.target_count = rows * length;
  return batch;
}

Batch batch_of_rows(const std::vector<Row>& rows, int64_t batch_rows, int64_t length) {
  Batch batch = empty_batch(batch_rows, length);
  for (const Row& row : rows) {
    copy_row(batch.inputs, batch.rows, row.inputs);
    copy_row(batch.targets, batch.rows, row.targets);
    copy_row(batch.inputs_position, batch.rows, row.positions);
    copy_row(batch.inputs_segmentation, batch.rows, row.segmentation);
    copy_row(batch.targets_segmentation, batch.rows, row.segmentation);
    std::vector<int32_t> next = row.positions;
    for (size_t i = 0; i < static_cast<size_t>(row.used); ++i) ++next[i];
    copy_row(batch.targets_position, batch.rows, next);
    batch.rows += 1;
    batch.target_count += row.used;
  }
  return batch;
}

Batcher::Batcher(std::unique_ptr<Source> source, std::shared_ptr<const Tokenizer> tokenizer,
                 const BatcherOptions& options)
    : pipeline_(std::make_unique<Pipeline>(std::move(source), std::move(tokenizer), options)) {}
Batcher::Batcher(Batch every_batch) : every_batch_(std::move(every_batch)) {}
Batcher::~Batcher() = default;
Batcher::Batcher(Batcher&&) noexcept = default;
Batcher& Batcher::operator=(Batcher&&) noexcept = default;

std::optional<Batch> Batcher::next() {
  if (pipeline_) return pipeline_->next();
  ++repeated_;
  return every_batch_;
}

Json Batcher::state() const {
  if (pipeline_) return pipeline_->state();
  return Json::Object{{"synthetic_batches", Json(repeated_)}};
}

void Batcher::restore(const Json& state) {
  if (pipeline_) return pipeline_->restore(state);
  repeated_ = state.at("synthetic_batches").as_int();
}

DataCounts Batcher::counts() const {
  if (pipeline_) return pipeline_->counts();
  const int64_t tokens = every_batch_->inputs.size();
  return {repeated_, 0, repeated_ * tokens};
}

}  // namespace mt::data
