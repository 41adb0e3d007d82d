#include "data/pipeline.h"

#include <utility>

#include "base/error.h"

namespace mt::data {

Batcher::Pipeline::Pipeline(std::unique_ptr<Source> source,
                            std::shared_ptr<const Tokenizer> tokenizer,
                            const BatcherOptions& options)
    : source_(std::move(source)),
      tokenizer_(std::move(tokenizer)),
      options_(options),
      packer_(options.length, options.packing),
      taken_{source_->state(), packer_, {}} {
  if (options.rows < 1 || options.prefetch < 1) {
    throw fail(ErrorKind::kConfig, "batches of {} rows, {} ahead; expected at least 1 of each",
               options.rows, options.prefetch);
  }
}

Batcher::Pipeline::~Pipeline() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::optional<Batch> Batcher::Pipeline::next() {
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !queue_.empty() || ended_; });
  if (queue_.empty()) {
    if (error_) std::rethrow_exception(error_);
    return std::nullopt;
  }
  Made made = std::move(queue_.front());
  queue_.pop_front();
  lock.unlock();
  changed_.notify_all();
  taken_ = std::move(made.after);
  return std::move(made.batch);
}

Json Batcher::Pipeline::state() const {
  const DataCounts& counts = taken_.counts;
  return Json::Object{{"source", taken_.source},
                      {"packer", taken_.packer.state()},
                      {"vocab_size", Json(tokenizer_->vocab_size())},
                      {"batches", Json(counts.batches)},
                      {"documents", Json(counts.documents)},
                      {"tokens", Json(counts.tokens)}};
}

void Batcher::Pipeline::restore(const Json& state) {
  MT_CHECK(!thread_.joinable());
  if (state.at("vocab_size").as_int() != tokenizer_->vocab_size()) {
    throw fail(ErrorKind::kConfig,
               "the saved data position is of a tokenizer with {} pieces; this one has {}",
               state.at("vocab_size").as_int(), tokenizer_->vocab_size());
  }
  packer_.restore(state.at("packer"));
  source_->restore(state.at("source"));
  made_counts_ = {state.at("batches").as_int(), state.at("documents").as_int(),
                  state.at("tokens").as_int()};
  taken_ = {source_->state(), packer_, made_counts_};
}

void Batcher::Pipeline::run() {
  try {
    fruitful_epoch_ = source_->epoch();
    while (auto made = make()) push(std::move(*made));
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

// The next batch; nullopt at the end of the data or when stopping.
std::optional<Batcher::Pipeline::Made> Batcher::Pipeline::make() {
  std::vector<Row> rows;
  while (static_cast<int64_t>(rows.size()) < options_.rows) {
    if (stopping()) return std::nullopt;
    if (packer_.has_row()) {
      rows.push_back(packer_.take_row());
    } else if (!read_document()) {
      packer_.finish();
      if (!packer_.has_row()) break;
    }
  }
  if (rows.empty()) return std::nullopt;
  ++made_counts_.batches;
  return Made{batch_of_rows(rows, options_.rows, options_.length),
              {source_->state(), packer_, made_counts_}};
}

// Packs the next document, or part of one; false at the end of the data.
bool Batcher::Pipeline::read_document() {
  Document document;
  if (!source_->next(document)) return false;
  const auto tokens =
      tokenizer_->encode(document.text, {.add_bos = options_.add_bos && document.first,
                                         .add_eos = options_.add_eos && document.last});
  packer_.add(tokens, document.last);
  made_counts_.documents += document.last ? 1 : 0;
  made_counts_.tokens += static_cast<int64_t>(tokens.size());
  if (tokens.size() > 1) fruitful_epoch_ = source_->epoch();
  if (source_->epoch() > fruitful_epoch_ + 1) {
    throw fail(ErrorKind::kIo, "{}: no document in the data has two tokens, so none has a target",
               document.where);
  }
  return true;
}

bool Batcher::Pipeline::stopping() {
  const std::lock_guard lock(mutex_);
  return stop_;
}

void Batcher::Pipeline::push(Made made) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock,
                [&] { return stop_ || static_cast<int64_t>(queue_.size()) < options_.prefetch; });
  queue_.push_back(std::move(made));
  lock.unlock();
  changed_.notify_all();
}

}  // namespace mt::data
