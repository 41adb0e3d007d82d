// The background thread behind a Batcher.
//
// One thread owns source and packer from the first next() on. It makes batches into a queue of at
// most `prefetch`, each with a snapshot of source, packer and counts as they were when the batch
// was complete, so that the state a caller sees is that of the last batch it took. An exception on
// the thread ends it and is thrown by next() after the batches made before.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "data/batch.h"
#include "data/packing.h"

namespace mt::data {

// [batch_rows, length]; rows.size() <= batch_rows, the others stay padding.
Batch batch_of_rows(const std::vector<Row>& rows, int64_t batch_rows, int64_t length);

class Batcher::Pipeline final {
 public:
  Pipeline(std::unique_ptr<Source> source, std::shared_ptr<const Tokenizer> tokenizer,
           const BatcherOptions& options);
  ~Pipeline();

  std::optional<Batch> next();
  Json state() const;
  void restore(const Json& state);
  DataCounts counts() const { return taken_.counts; }

 private:
  struct Snapshot {
    Json source;
    Packer packer;
    DataCounts counts;
  };
  struct Made {
    Batch batch;
    Snapshot after;
  };

  // On the thread.
  void run();
  std::optional<Made> make();
  bool read_document();
  bool stopping();
  void push(Made made);

  std::unique_ptr<Source> source_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  BatcherOptions options_;
  Packer packer_;
  DataCounts made_counts_;
  int64_t fruitful_epoch_ = 0;  // the epoch of the last document that had a target

  Snapshot taken_;  // of the caller

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Made> queue_;
  std::exception_ptr error_;
  bool stop_ = false;
  bool ended_ = false;

  std::thread thread_;
};

}  // namespace mt::data
