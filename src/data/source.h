// Where documents come from.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"

namespace mt::data {

// A document, or a part of a long one: parts come in order, cut where a line ends, so that the
// tokens of the parts are those of the whole.
struct Document {
  std::string text;   // valid UTF-8
  std::string where;  // "file.jsonl:12" or "file.txt", for messages
  bool first = true;  // begins the document (gets BOS)
  bool last = true;   // ends it (gets EOS)
};

class Source {
 public:
  virtual ~Source() = default;
  // False at the end of the data; stays false. Throws kIo naming the file and line or byte.
  virtual bool next(Document& document) = 0;
  // Where next() goes on: {epoch, document, offset, ...}. restore() on a source over the same
  // data continues there exactly; it throws kConfig if the data is not the same.
  virtual int64_t epoch() const = 0;  // complete passes so far
  virtual Json state() const = 0;
  virtual void restore(const Json& state) = 0;
};

struct TextSourceOptions {
  // Comma-separated files, glob patterns (sorted) and directories (every .txt, .md, .json and
  // .jsonl in them, recursively, sorted). *.jsonl and *.json: a JSON object a line, blank lines
  // skipped. Anything else is plain text.
  std::string paths;
  std::string text_field = "text";  // of a JSON line
  // Plain text: a line that is exactly this ends a document ("%" for fortune files); empty: the
  // file is one document. A blank line never ends one, so a book keeps its context.
  std::string document_separator;
  int64_t num_epoch = 1;  // -1: for ever
  bool shuffle = false;   // documents, in a new order each epoch
  uint64_t shuffle_seed = 0;
  int64_t part_bytes = 64 * 1024;  // longest part of a document handed out
};

// Reads the files once to index where documents begin (32 bytes of memory each), then a document
// at a time; no file is held whole. Throws kIo for a missing or unreadable file or a pattern that
// matches nothing, kConfig for bad options. Files with no documents are fine.
std::unique_ptr<Source> open_text_source(const TextSourceOptions& options);

// The files that `paths` stands for, in order.
std::vector<std::string> expand_paths(const std::string& paths);

}  // namespace mt::data
