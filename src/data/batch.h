// Batches for training: the six arrays of MaxText's input pipelines, and what makes them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/json.h"
#include "base/tensor.h"
#include "data/source.h"
#include "data/tokenizer.h"

namespace mt::data {

// int32 [B, S] each. Padding is 0 in all six; a position counts in the loss iff
// targets_segmentation != 0.
struct Batch {
  Tensor inputs;
  Tensor targets;
  Tensor inputs_position;
  Tensor targets_position;  // inputs_position + 1
  Tensor inputs_segmentation;
  Tensor targets_segmentation;
  int64_t rows = 0;          // rows with data; fewer than B only in the last batch
  int64_t target_count = 0;  // positions with targets_segmentation != 0
};

// MaxText's batch sizes. per_device_batch_size < 1 loads one row a device and trains on
// int(devices * per_device_batch_size) of them. Throws kConfig if no row is left.
struct BatchSizes {
  int64_t to_load = 0;
  int64_t to_train = 0;
};
BatchSizes global_batch_sizes(int64_t devices, double per_device_batch_size,
                              int64_t gradient_accumulation_steps);

// dataset_type=synthetic: random_bits(random_key(seed)) % V over [B, S+1], inputs all but the last
// column, targets all but the first, positions 0..S-1 and 1..S, segmentations all ones. Row r does
// not depend on B.
Batch synthetic_batch(int64_t rows, int64_t length, int64_t vocab_size, uint64_t seed = 0);

struct BatcherOptions {
  int64_t rows = 1;    // B
  int64_t length = 1;  // S
  bool packing = true;
  bool add_bos = true;
  bool add_eos = true;
  int64_t prefetch = 2;  // batches made ahead by the background thread
};

// Counts of what was handed out up to a batch.
struct DataCounts {
  int64_t batches = 0;
  int64_t documents = 0;  // whose text was read to the end (some tokens may wait in the packer)
  int64_t tokens = 0;     // tokens of those documents and parts, BOS and EOS included
};

// Reads, tokenises and packs on a background thread, which stops when the Batcher goes away.
class Batcher final {
 public:
  Batcher(std::unique_ptr<Source> source, std::shared_ptr<const Tokenizer> tokenizer,
          const BatcherOptions& options);
  // For ever the same batch (dataset_type=synthetic).
  explicit Batcher(Batch every_batch);
  ~Batcher();
  Batcher(Batcher&&) noexcept;
  Batcher& operator=(Batcher&&) noexcept;

  // nullopt at the end of the data; before it the last batch may have empty rows (segmentation 0).
  // Throws what the source threw, then and at every later call; the batches before it come first.
  std::optional<Batch> next();

  // As of the last batch that next() returned, whatever was made ahead. A new Batcher over the same
  // source and options that restores it goes on with the very next batch. `rows` may differ.
  Json state() const;
  // Before the first next(). Throws kConfig if the state is of other data, length or packing.
  void restore(const Json& state);
  DataCounts counts() const;

 private:
  class Pipeline;
  std::unique_ptr<Pipeline> pipeline_;
  std::optional<Batch> every_batch_;
  int64_t repeated_ = 0;
};

}  // namespace mt::data
