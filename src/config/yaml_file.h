// YAML files of settings, as far as the configuration uses YAML: one map of scalars, lists of
// scalars, and axis rules. All faults are kConfig (kIo if unreadable), "path:line: what".
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/value.h"

namespace mt::config {

class YamlFile {
 public:
  struct Entry {
    std::string key;
    int line = 0;  // from 1
  };

  // Refuses more than 1 MB, what is not a map, keys that are not texts, duplicate keys.
  explicit YamlFile(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<Entry>& entries() const { return entries_; }

  // The value of entries()[index]. A quoted scalar is a text and nothing else; null is the empty
  // text; a plain scalar may be a text as well.
  Value value(size_t index, Type type) const;

 private:
  struct Nodes;
  std::string path_;
  std::vector<Entry> entries_;
  std::shared_ptr<const Nodes> nodes_;
};

// A list or rules on one line in YAML's flow form: [a, b]. Throws kConfig.
Value parse_yaml_word(Type type, std::string_view text);

}  // namespace mt::config
