// The table of keys: the one place where a key's name, type, default, meaning and limits stand.
#pragma once

#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "config/value.h"

namespace mt::config {

struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool open_low = false;  // low itself is not allowed
  bool open_high = false;
};

struct Key {
  std::string_view name;
  Type type;
  std::string_view value;  // the default, as one would write it on the command line
  std::string_view help;
  std::string_view read_in;       // the room that acts on it
  std::string_view choices = {};  // "a|b": the values that work; empty = all of the type in range
  std::string_view later = {};    // "c|d": MaxText's values that don't work yet; "*" = all others
  Range range = {};
};

struct Group {
  std::string_view title;
  std::span<const Key> keys;
};

std::span<const Group> groups();

// All keys in the order of the table.
const std::vector<const Key*>& all_keys();
const std::vector<std::string_view>& all_names();

// Index in all_keys(), -1 if there is none. Accepts the older names of a key.
int find_key(std::string_view name);

Value default_value(const Key& key);  // kRules: empty (they come from base.yml)

// Throws kConfig if `value` is of the key's type but not one that it accepts.
void check_value(const Key& key, const Value& value);

}  // namespace mt::config
