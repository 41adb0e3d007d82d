#include "data/document_index.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "base/error.h"

namespace mt::data {
namespace {

constexpr size_t kWindow = size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

uint64_t mix(uint64_t hash, uint64_t value) {  // FNV-1a over words
  return (hash ^ value) * 0x100000001b3ULL;
}

uint64_t mix(uint64_t hash, std::string_view text) {
  for (const char c : text) hash = mix(hash, static_cast<uint8_t>(c));
  return hash;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// Goes through the lines of one file and adds its documents to the index. Of a line only its first
// bytes are kept: enough to tell a separator or a blank line.
class FileScan final {
 public:
  FileScan(DocumentIndex& index, const std::string& separator)
      : index_(index),
        separator_(separator),
        file_(static_cast<uint32_t>(index.files.size() - 1)) {}

  void run() {
    const auto file = MappedFile::open(path());
    const uint64_t bytes = file->bytes().size();
    index_.files.back().bytes = bytes;
    std::string window;
    for (uint64_t at = 0; at < bytes; at += window.size()) {
      window.resize(std::min<uint64_t>(kWindow, bytes - at));
      file->read_at(at, std::as_writable_bytes(std::span(window)));
      if (at == 0 && window.starts_with(kByteOrderMark)) line_begin_ = begin_ = 3;
      scan(window, at);
    }
    if (line_begin_ < bytes) end_line(bytes);
    if (!json_lines()) end_document(bytes);
  }

 private:
  const std::string& path() const { return index_.files.back().path; }
  bool json_lines() const { return index_.files.back().json_lines; }

  void scan(std::string_view window, uint64_t window_at) {
    size_t at = line_begin_ > window_at ? line_begin_ - window_at : 0;
    while (at < window.size()) {
      const size_t newline = window.find('\n', at);
      const size_t end = std::min(newline, window.size());
      keep(window.substr(at, end - at));
      if (newline == std::string_view::npos) return;
      at = newline + 1;
      end_line(window_at + at);
    }
  }

  void keep(std::string_view text) {
    if (!is_blank(text)) blank_ = false;
    head_.append(text.substr(0, std::min(text.size(), separator_.size() + 2 - head_.size())));
  }

  // The line that begins at line_begin_ ends before `next`.
  void end_line(uint64_t next) {
    if (json_lines()) {
      if (!blank_) add(line_begin_, next, line_);
    } else if (!separator_.empty() && is_separator()) {
      end_document(line_begin_);
      begin_ = next;
      begin_line_ = line_ + 1;
    } else if (!blank_) {
      has_text_ = true;
    }
    line_begin_ = next;
    ++line_;
    head_.clear();
    blank_ = true;
  }

  bool is_separator() const {
    return head_ == separator_ || (head_.size() == separator_.size() + 1 && head_.back() == '\r' &&
                                   head_.starts_with(separator_));
  }

  void end_document(uint64_t end) {
    if (has_text_) add(begin_, end, begin_line_);
    has_text_ = false;
  }

  void add(uint64_t begin, uint64_t end, uint64_t line) {
    const uint64_t shown = std::min<uint64_t>(line, std::numeric_limits<uint32_t>::max());
    index_.documents.push_back({begin, end - begin, file_, static_cast<uint32_t>(shown)});
    index_.fingerprint = mix(mix(index_.fingerprint, begin), end);
  }

  DocumentIndex& index_;
  const std::string& separator_;
  uint32_t file_;
  uint64_t line_begin_ = 0;
  uint64_t line_ = 1;
  uint64_t begin_ = 0;  // of the document
  uint64_t begin_line_ = 1;
  std::string head_;
  bool blank_ = true;      // the line so far
  bool has_text_ = false;  // the document so far
};

}  // namespace

DocumentIndex index_documents(const std::vector<std::string>& paths, const std::string& separator) {
  DocumentIndex index;
  index.fingerprint = 0xcbf29ce484222325ULL;
  for (const std::string& path : paths) {
    index.files.push_back({path, 0, path.ends_with(".jsonl") || path.ends_with(".json")});
    FileScan(index, separator).run();
    index.fingerprint = mix(index.fingerprint, std::string_view(path).substr(path.rfind('/') + 1));
    index.fingerprint = mix(index.fingerprint, index.files.back().bytes);
  }
  return index;
}

}  // namespace mt::data
