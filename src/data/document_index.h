// Where the documents of a list of files begin and end; found by reading the files once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"

namespace mt::data {

struct DocumentEntry {
  uint64_t offset = 0;  // first byte in the file
  uint64_t bytes = 0;
  uint32_t file = 0;  // in DocumentIndex::files
  uint32_t line = 0;  // of the first byte, from 1
};

struct IndexedFile {
  std::string path;
  uint64_t bytes = 0;
  bool json_lines = false;
};

struct DocumentIndex {
  std::vector<IndexedFile> files;
  std::vector<DocumentEntry> documents;
  uint64_t fingerprint = 0;  // of the names (without folders), sizes and document bounds
};

// `separator`: see TextSourceOptions::document_separator. Throws kIo.
DocumentIndex index_documents(const std::vector<std::string>& paths, const std::string& separator);

}  // namespace mt::data
