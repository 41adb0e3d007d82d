// JSON values behind our own type, so that nlohmann/json is compiled in one file only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace mt {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;  // order of the text is kept

  Json() = default;  // null
  Json(bool v) : value_(v) {}
  Json(int64_t v) : value_(v) {}
  Json(int v) : value_(static_cast<int64_t>(v)) {}
  Json(double v) : value_(v) {}
  Json(const char* v) : value_(std::string(v)) {}
  Json(std::string v) : value_(std::move(v)) {}
  Json(Array v) : value_(std::move(v)) {}
  Json(Object v) : value_(std::move(v)) {}

  bool is_null() const { return value_.index() == 0; }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  bool is_number() const { return is_int() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  // Accessors throw kIo ("expected a string, found ...") on the wrong type.
  bool as_bool() const;
  int64_t as_int() const;  // a double with an integral value is accepted
  double as_double() const;
  const std::string& as_string() const;
  const Array& as_array() const;
  const Object& as_object() const;

  const Json* find(std::string_view key) const;  // nullptr if absent (or not an object)
  const Json& at(std::string_view key) const;    // throws kIo naming the key
  void set(std::string key, Json value);         // object only; replaces or appends

  std::string dump(int indent = -1) const;
  // Throws kIo with position and reason; refuses duplicate keys and nesting deeper than max_depth.
  static Json parse(std::string_view text, int max_depth = 100);

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

}  // namespace mt
