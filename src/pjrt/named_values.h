// The options that a plugin's clients and topologies are made with.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

struct PJRT_NamedValue;

namespace mt::pjrt {

using OptionValue = std::variant<std::string, int64_t, bool, float>;
using NamedValues = std::map<std::string, OptionValue>;

// For this room: the C API's form; points into `values`.
std::vector<PJRT_NamedValue> c_values(const NamedValues& values);

}  // namespace mt::pjrt
