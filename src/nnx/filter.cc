#include "nnx/filter.h"

#include <algorithm>

namespace mt::nnx {

Filter of_kind(VariableKind kind) {
  return [kind](const std::string&, const Variable& v) { return v.kind == kind; };
}

Filter path_contains(std::string part) {
  return [part = "/" + std::move(part) + "/"](const std::string& path, const Variable&) {
    return ("/" + path + "/").find(part) != std::string::npos;
  };
}

Filter everything() {
  return [](const std::string&, const Variable&) { return true; };
}

Filter nothing() { return not_of(everything()); }

Filter all_of(std::vector<Filter> filters) {
  return [filters = std::move(filters)](const std::string& path, const Variable& v) {
    return std::all_of(filters.begin(), filters.end(), [&](const Filter& f) { return f(path, v); });
  };
}

Filter any_of(std::vector<Filter> filters) {
  return [filters = std::move(filters)](const std::string& path, const Variable& v) {
    return std::any_of(filters.begin(), filters.end(), [&](const Filter& f) { return f(path, v); });
  };
}

Filter not_of(Filter filter) {
  return [filter = std::move(filter)](const std::string& path, const Variable& v) {
    return !filter(path, v);
  };
}

}  // namespace mt::nnx
