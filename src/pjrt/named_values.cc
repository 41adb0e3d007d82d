#include "pjrt/named_values.h"

#include <pjrt_c_api.h>

namespace mt::pjrt {
namespace {

PJRT_NamedValue named_value(const std::string& name, const OptionValue& value) {
  PJRT_NamedValue out{};
  out.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  out.name = name.data();
  out.name_size = name.size();
  out.value_size = 1;
  if (const auto* text = std::get_if<std::string>(&value)) {
    out.type = PJRT_NamedValue_kString;
    out.string_value = text->data();
    out.value_size = text->size();
  } else if (const auto* number = std::get_if<int64_t>(&value)) {
    out.type = PJRT_NamedValue_kInt64;
    out.int64_value = *number;
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    out.type = PJRT_NamedValue_kBool;
    out.bool_value = *flag;
  } else {
    out.type = PJRT_NamedValue_kFloat;
    out.float_value = std::get<float>(value);
  }
  return out;
}

}  // namespace

std::vector<PJRT_NamedValue> c_values(const NamedValues& values) {
  std::vector<PJRT_NamedValue> out;
  for (const auto& [name, value] : values) out.push_back(named_value(name, value));
  return out;
}

}  // namespace mt::pjrt
