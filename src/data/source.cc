#include "data/source.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "data/document_index.h"
#include "data/text_cut.h"
#include "data/utf8.h"

namespace mt::data {
namespace {

constexpr uint64_t kLongestJsonLine = uint64_t{256} << 20;

// Fisher-Yates; the order of an epoch depends on seed, epoch and count only.
std::vector<uint64_t> shuffled(uint64_t count, uint64_t seed, int64_t epoch) {
  std::vector<uint64_t> order(count);
  std::iota(order.begin(), order.end(), uint64_t{0});
  const RandomKey key = fold_in(random_key(seed), static_cast<uint32_t>(epoch));
  for (uint64_t i = count; i > 1; --i) {
    const auto bits = threefry2x32(key, static_cast<uint32_t>(i >> 32), static_cast<uint32_t>(i));
    const uint64_t wide = (uint64_t{bits[0]} << 32) | bits[1];
    std::swap(order[i - 1], order[wide % i]);
  }
  return order;
}

class TextSource final : public Source {
 public:
  explicit TextSource(const TextSourceOptions& options)
      : options_(options),
        index_(index_documents(expand_paths(options.paths), options.document_separator)) {
    start_epoch();
  }

  bool next(Document& document) override {
    while (true) {
      if (ended()) return false;
      if (position_ == index_.documents.size()) {
        ++epoch_;
        position_ = 0;
        start_epoch();
        continue;
      }
      const DocumentEntry& entry = index_.documents[document_at(position_)];
      file_of(entry).json_lines ? next_json(entry, document) : next_text(entry, document);
      return true;
    }
  }

  int64_t epoch() const override { return epoch_; }

  Json state() const override {
    return Json::Object{{"epoch", Json(epoch_)},
                        {"document", Json(static_cast<int64_t>(position_))},
                        {"offset", Json(static_cast<int64_t>(offset_))},
                        {"data", Json(identity())}};
  }

  void restore(const Json& state) override {
    if (state.at("data").as_string() != identity()) {
      throw fail(ErrorKind::kConfig,
                 "the saved data position is of other data (files, shuffling or seed changed): "
                 "{} here, {} saved",
                 identity(), state.at("data").as_string());
    }
    const int64_t epoch = state.at("epoch").as_int();
    const int64_t position = state.at("document").as_int();
    const int64_t offset = state.at("offset").as_int();
    if (epoch < 0 || position < 0 || offset < 0 ||
        position > static_cast<int64_t>(index_.documents.size())) {
      throw fail(ErrorKind::kConfig,
                 "the saved data position is out of range: epoch {}, document "
                 "{} of {}, offset {}",
                 epoch, position, index_.documents.size(), offset);
    }
    epoch_ = epoch;
    position_ = static_cast<uint64_t>(position);
    offset_ = static_cast<uint64_t>(offset);
    json_text_.clear();
    start_epoch();
  }

 private:
  bool ended() const {
    if (index_.documents.empty()) return true;
    return options_.num_epoch >= 0 && epoch_ >= options_.num_epoch;
  }

  void start_epoch() {
    if (options_.shuffle && !ended()) {
      order_ = shuffled(index_.documents.size(), options_.shuffle_seed, epoch_);
    }
  }

  size_t document_at(uint64_t position) const {
    return options_.shuffle ? order_[position] : position;
  }

  const IndexedFile& file_of(const DocumentEntry& entry) const { return index_.files[entry.file]; }

  std::string identity() const {
    return fmt::format(
        "{:016x}/{}/{}", index_.fingerprint, options_.text_field,
        options_.shuffle ? fmt::format("seed {}", options_.shuffle_seed) : "in order");
  }

  std::string where(const DocumentEntry& entry) const {
    return fmt::format("{}:{}", file_of(entry).path, entry.line);
  }

  // Bytes of a document's file; an Error if the file is not what was indexed.
  std::string read(const DocumentEntry& entry, uint64_t offset, uint64_t bytes) {
    const IndexedFile& indexed = file_of(entry);
    if (!open_ || open_->path() != indexed.path) open_ = MappedFile::open(indexed.path);
    if (open_->bytes().size() != indexed.bytes) {
      throw fail(ErrorKind::kIo, "{}: {} bytes, but {} when the run began", indexed.path,
                 open_->bytes().size(), indexed.bytes);
    }
    std::string text(bytes, '\0');
    open_->read_at(offset, std::as_writable_bytes(std::span(text)));
    return text;
  }

  void check_utf8(const DocumentEntry& entry, uint64_t offset, std::string_view text) const {
    if (const auto at = first_invalid_utf8(text)) {
      throw fail(ErrorKind::kIo, "{}: not valid UTF-8 at byte {}", file_of(entry).path,
                 offset + *at);
    }
  }

  // Bytes of the document not handed out yet. Only a bad saved offset can be past the end.
  uint64_t bytes_left(uint64_t bytes) const {
    if (offset_ > 0 && offset_ >= bytes) {
      throw fail(ErrorKind::kConfig,
                 "the saved data position is out of range: byte {} of a "
                 "document of {}",
                 offset_, bytes);
    }
    return bytes - offset_;
  }

  void next_text(const DocumentEntry& entry, Document& document) {
    const uint64_t left = bytes_left(entry.bytes);
    const uint64_t at = entry.offset + offset_;
    const auto usual = static_cast<uint64_t>(options_.part_bytes);
    std::string text = read(entry, at, std::min(left, usual + 1));
    size_t length = part_length(text, usual, kLongestPart);
    if (left > usual && length == text.size()) {  // no line ends within the usual length
      text = read(entry, at, std::min<uint64_t>(left, kLongestPart + 1));
      length = part_length(text, usual, kLongestPart);
    }
    text.resize(length);
    check_utf8(entry, at, text);
    hand_out(entry, std::move(text), left, document);
  }

  void next_json(const DocumentEntry& entry, Document& document) {
    if (json_text_.empty()) json_text_ = parse_line(entry);
    const uint64_t left = bytes_left(json_text_.size());
    const std::string_view rest = std::string_view(json_text_).substr(offset_);
    const size_t length = part_length(rest, static_cast<size_t>(options_.part_bytes), kLongestPart);
    hand_out(entry, std::string(rest.substr(0, length)), left, document);
  }

  std::string parse_line(const DocumentEntry& entry) {
    if (entry.bytes > kLongestJsonLine) {
      throw fail(ErrorKind::kIo, "{}: a line of {} bytes; at most {}", where(entry), entry.bytes,
                 kLongestJsonLine);
    }
    const std::string line = read(entry, entry.offset, entry.bytes);
    check_utf8(entry, entry.offset, line);
    try {
      const Json object = Json::parse(line);
      if (!object.is_object()) throw fail(ErrorKind::kIo, "expected a JSON object");
      return object.at(options_.text_field).as_string();
    } catch (const Error& e) {
      throw fail(ErrorKind::kIo, "{}: {}", where(entry), e.what());
    }
  }

  void hand_out(const DocumentEntry& entry, std::string text, uint64_t left, Document& document) {
    const uint64_t length = text.size();
    document = {std::move(text), where(entry), offset_ == 0, length == left};
    offset_ += length;
    if (length < left) return;
    ++position_;
    offset_ = 0;
    json_text_.clear();
  }

  TextSourceOptions options_;
  DocumentIndex index_;
  std::vector<uint64_t> order_;  // of this epoch, when shuffling
  int64_t epoch_ = 0;
  uint64_t position_ = 0;  // in the order of the epoch
  uint64_t offset_ = 0;    // bytes of the document handed out
  std::string json_text_;  // of the document at position_, while parts of it are left
  std::shared_ptr<const MappedFile> open_;
};

}  // namespace

std::unique_ptr<Source> open_text_source(const TextSourceOptions& options) {
  if (options.num_epoch < -1 || options.num_epoch == 0) {
    throw fail(ErrorKind::kConfig, "num_epoch is {}; expected a positive number, or -1 for ever",
               options.num_epoch);
  }
  if (options.part_bytes < 16 || options.part_bytes > static_cast<int64_t>(kLongestPart)) {
    throw fail(ErrorKind::kConfig, "part_bytes is {}; expected 16 to {}", options.part_bytes,
               kLongestPart);
  }
  if (options.document_separator.find('\n') != std::string::npos) {
    throw fail(ErrorKind::kConfig, "document_separator must be one line");
  }
  return std::make_unique<TextSource>(options);
}

}  // namespace mt::data
