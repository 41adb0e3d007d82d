#include "base/json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"

namespace mt {
namespace {

// Builds a Json from parser events; stops at the depth limit, before the stack can overflow.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(int max_depth) : max_depth_(max_depth) {}
  bool null() override { return add(Json()); }
  bool boolean(bool v) override { return add(Json(v)); }
  bool number_integer(number_integer_t v) override { return add(Json(int64_t{v})); }
  bool number_unsigned(number_unsigned_t v) override {
    if (v > static_cast<uint64_t>(INT64_MAX)) return add(Json(static_cast<double>(v)));
    return add(Json(static_cast<int64_t>(v)));
  }
  bool number_float(number_float_t v, const string_t&) override { return add(Json(v)); }
  bool string(string_t& v) override { return add(Json(std::move(v))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& v) override {
    if (!stack_.back().keys.insert(v).second) {
      error = fmt::format("duplicate key \"{}\"", v.substr(0, 100));
      return false;
    }
    stack_.back().key = std::move(v);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& e) override {
    const std::string what = e.what();
    const size_t cut = what.find("] ");
    error = fmt::format("byte {}: {}", position,
                        (cut == std::string::npos ? what : what.substr(cut + 2)).substr(0, 200));
    return false;
  }

  Json root;
  std::string error;

 private:
  struct Level {
    bool object = false;
    std::string key;
    std::set<std::string> keys;
    Json::Array items;
    Json::Object members;
  };

  bool add(Json v) {
    if (stack_.empty()) {
      root = std::move(v);
    } else if (stack_.back().object) {
      stack_.back().members.emplace_back(std::move(stack_.back().key), std::move(v));
    } else {
      stack_.back().items.push_back(std::move(v));
    }
    return true;
  }
  bool open(bool object) {
    if (static_cast<int>(stack_.size()) >= max_depth_) {
      error = fmt::format("nested deeper than {} levels", max_depth_);
      return false;
    }
    stack_.emplace_back();
    stack_.back().object = object;
    return true;
  }
  bool close() {
    Level level = std::move(stack_.back());
    stack_.pop_back();
    return add(level.object ? Json(std::move(level.members)) : Json(std::move(level.items)));
  }

  int max_depth_;
  std::vector<Level> stack_;
};

const char* kind_of(const Json& v) {
  if (v.is_null()) return "null";
  if (v.is_bool()) return "a bool";
  if (v.is_number()) return "a number";
  if (v.is_string()) return "a string";
  return v.is_array() ? "an array" : "an object";
}

Error wrong(const char* expected, const Json& found) {
  return fail(ErrorKind::kIo, "expected {}, found {}", expected, kind_of(found));
}

nlohmann::ordered_json convert(const Json& v) {
  if (v.is_null()) return nullptr;
  if (v.is_bool()) return v.as_bool();
  if (v.is_int()) return v.as_int();
  if (v.is_number()) return v.as_double();
  if (v.is_string()) return v.as_string();
  if (v.is_array()) {
    auto out = nlohmann::ordered_json::array();
    for (const Json& item : v.as_array()) out.push_back(convert(item));
    return out;
  }
  auto out = nlohmann::ordered_json::object();
  for (const auto& [key, value] : v.as_object()) out[key] = convert(value);
  return out;
}

}  // namespace

bool Json::as_bool() const {
  if (!is_bool()) throw wrong("a bool", *this);
  return std::get<bool>(value_);
}
int64_t Json::as_int() const {
  if (is_int()) return std::get<int64_t>(value_);
  if (const auto* d = std::get_if<double>(&value_);
      d && *d == std::floor(*d) && std::abs(*d) < 9e15) {
    return static_cast<int64_t>(*d);
  }
  throw wrong("an integer", *this);
}
double Json::as_double() const {
  if (is_int()) return static_cast<double>(std::get<int64_t>(value_));
  if (!is_number()) throw wrong("a number", *this);
  return std::get<double>(value_);
}
const std::string& Json::as_string() const {
  if (!is_string()) throw wrong("a string", *this);
  return std::get<std::string>(value_);
}
const Json::Array& Json::as_array() const {
  if (!is_array()) throw wrong("an array", *this);
  return std::get<Array>(value_);
}
const Json::Object& Json::as_object() const {
  if (!is_object()) throw wrong("an object", *this);
  return std::get<Object>(value_);
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const auto& [k, v] : as_object()) {
    if (k == key) return &v;
  }
  return nullptr;
}
const Json& Json::at(std::string_view key) const {
  if (const Json* v = find(key)) return *v;
  throw fail(ErrorKind::kIo, "missing key \"{}\"", key);
}
void Json::set(std::string key, Json value) {
  if (is_null()) value_ = Object{};
  if (!is_object()) throw wrong("an object", *this);
  auto& members = std::get<Object>(value_);
  for (auto& [k, v] : members) {
    if (k == key) {
      v = std::move(value);
      return;
    }
  }
  members.emplace_back(std::move(key), std::move(value));
}

std::string Json::dump(int indent) const {
  return convert(*this).dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

Json Json::parse(std::string_view text, int max_depth) {
  Builder builder(max_depth);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    throw fail(ErrorKind::kIo, "invalid JSON: {}", builder.error);
  }
  return std::move(builder.root);
}

}  // namespace mt
