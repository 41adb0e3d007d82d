// The fields of a JSON object that a stranger sent: each is asked for by its name, and one that
// nobody asked for is refused. A null is as good as none. Faults are ApiFaults that name the field.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/json.h"

namespace mt::http {

class Fields {
 public:
  // `object` must outlive this. `where`: what stands before the names, such as "messages[0].".
  explicit Fields(const Json& object, std::string where = "");

  const Json* any(std::string_view name);  // null: not there
  std::optional<bool> flag(std::string_view name);
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high);
  std::optional<double> number(std::string_view name, double low, double high);
  std::optional<std::string> text(std::string_view name);  // valid UTF-8
  const Json& required(std::string_view name);
  // A field that OpenAI has and this server doesn't.
  void not_supported(std::string_view name, std::string_view why = "");
  void done() const;  // throws if there is a field that nobody asked for

  std::string path(std::string_view name) const { return where_ + std::string(name); }

 private:
  const Json& object_;
  const std::string where_;
  std::set<std::string, std::less<>> known_;
};

const char* kind_of(const Json& v);  // "a string", for messages

}  // namespace mt::http
