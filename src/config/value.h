// A setting's value, and its text forms.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sharding/rules.h"

namespace mt::config {

enum class Type { kInteger, kNumber, kFlag, kText, kList, kRules };

using Value = std::variant<int64_t, double, bool, std::string, std::vector<std::string>,
                           std::vector<sharding::AxisRule>>;  // in the order of Type

std::string_view expected(Type type);  // "an integer"; for messages

// One scalar word. Integers and numbers may hold single underscores between digits (150_001);
// numbers must be finite; flags are true or false in any case. nullopt if it isn't one.
// Not for kList and kRules.
std::optional<Value> parse_scalar(Type type, std::string_view word);

// As Python prints it: 3e-05, 12.0, True, ['a', 'b'].
std::string to_text(const Value& value);

}  // namespace mt::config
