// Filters choose variables by kind or path, as flax.nnx's do.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nnx/variable.h"

namespace mt::nnx {

using Filter = std::function<bool(const std::string& path, const Variable& variable)>;

Filter of_kind(VariableKind kind);
Filter path_contains(std::string part);  // a whole component: "mlp"
Filter everything();
Filter nothing();
Filter all_of(std::vector<Filter> filters);
Filter any_of(std::vector<Filter> filters);
Filter not_of(Filter filter);

}  // namespace mt::nnx
