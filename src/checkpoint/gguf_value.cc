#include "base/error.h"
#include "checkpoint/gguf.h"

namespace mt::checkpoint {
namespace {

template <typename T>
const T& get_as(const GgufValue& value, const char* expected) {
  if (const T* v = std::get_if<T>(&value.get())) return *v;
  throw fail(ErrorKind::kIo, "expected {}, found {}", expected, value.kind());
}

}  // namespace

const char* GgufValue::kind() const {
  constexpr const char* kNames[] = {"a bool",
                                    "an integer",
                                    "an integer",
                                    "a number",
                                    "a string",
                                    "an array of bools",
                                    "an array of integers",
                                    "an array of integers",
                                    "an array of numbers",
                                    "an array of numbers",
                                    "an array of strings",
                                    "an array of arrays"};
  static_assert(std::size(kNames) == std::variant_size_v<Variant>);
  return kNames[value_.index()];
}

bool GgufValue::as_bool() const { return get_as<bool>(*this, "a bool"); }

int64_t GgufValue::as_int() const {
  if (const auto* v = std::get_if<uint64_t>(&value_)) {
    if (*v > static_cast<uint64_t>(INT64_MAX)) {
      throw fail(ErrorKind::kIo, "{} is too large", *v);
    }
    return static_cast<int64_t>(*v);
  }
  return get_as<int64_t>(*this, "an integer");
}

double GgufValue::as_double() const {
  if (const auto* v = std::get_if<int64_t>(&value_)) return static_cast<double>(*v);
  if (const auto* v = std::get_if<uint64_t>(&value_)) return static_cast<double>(*v);
  return get_as<double>(*this, "a number");
}

const std::string& GgufValue::as_string() const { return get_as<std::string>(*this, "a string"); }

const std::vector<std::string>& GgufValue::as_strings() const {
  return get_as<std::vector<std::string>>(*this, "an array of strings");
}
const std::vector<float>& GgufValue::as_floats() const {
  return get_as<std::vector<float>>(*this, "an array of float32");
}
const std::vector<int64_t>& GgufValue::as_ints() const {
  return get_as<std::vector<int64_t>>(*this, "an array of integers");
}

}  // namespace mt::checkpoint
