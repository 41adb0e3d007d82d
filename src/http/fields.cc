#include "http/fields.h"

#include "http/api_fault.h"

namespace mt::http {

const char* kind_of(const Json& v) {
  if (v.is_null()) return "null";
  if (v.is_bool()) return "a boolean";
  if (v.is_int()) return "an integer";
  if (v.is_number()) return "a number";
  if (v.is_string()) return "a string";
  return v.is_array() ? "an array" : "an object";
}

Fields::Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (object.is_object()) return;
  const std::string name = where_.empty() ? "" : where_.substr(0, where_.size() - 1);
  throw bad_field(name, "{}: expected an object, found {}", name.empty() ? "the body" : name,
                  kind_of(object));
}

const Json* Fields::any(std::string_view name) {
  known_.emplace(name);
  const Json* v = object_.find(name);
  return v != nullptr && v->is_null() ? nullptr : v;
}

std::optional<bool> Fields::flag(std::string_view name) {
  const Json* v = any(name);
  if (v == nullptr) return std::nullopt;
  if (!v->is_bool()) {
    throw bad_field(path(name), "{}: expected a boolean, found {}", path(name), kind_of(*v));
  }
  return v->as_bool();
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t low, int64_t high) {
  const Json* v = any(name);
  if (v == nullptr) return std::nullopt;
  if (!v->is_int()) {
    throw bad_field(path(name), "{}: expected an integer, found {}", path(name), kind_of(*v));
  }
  if (v->as_int() < low || v->as_int() > high) {
    throw bad_field(path(name), "{} is {}: expected {} to {}", path(name), v->as_int(), low, high);
  }
  return v->as_int();
}

std::optional<double> Fields::number(std::string_view name, double low, double high) {
  const Json* v = any(name);
  if (v == nullptr) return std::nullopt;
  if (!v->is_number()) {
    throw bad_field(path(name), "{}: expected a number, found {}", path(name), kind_of(*v));
  }
  const double x = v->as_double();
  if (x >= low && x <= high) return x;
  throw bad_field(path(name), "{} is {}: expected {} to {}", path(name), x, low, high);
}

std::optional<std::string> Fields::text(std::string_view name) {
  const Json* v = any(name);
  if (v == nullptr) return std::nullopt;
  if (!v->is_string()) {
    throw bad_field(path(name), "{}: expected a string, found {}", path(name), kind_of(*v));
  }
  return v->as_string();
}

const Json& Fields::required(std::string_view name) {
  if (const Json* v = any(name)) return *v;
  throw bad_field(path(name), "{} is missing", path(name));
}

void Fields::not_supported(std::string_view name, std::string_view why) {
  if (any(name) == nullptr) return;
  throw bad_field(path(name), "{} is not supported{}{}", path(name), why.empty() ? "" : ": ", why);
}

void Fields::done() const {
  for (const auto& [name, value] : object_.as_object()) {
    if (known_.contains(name)) continue;
    const std::string shown = path(name.substr(0, 100));
    throw bad_field(shown, "there is no field {}", shown);
  }
}

}  // namespace mt::http
