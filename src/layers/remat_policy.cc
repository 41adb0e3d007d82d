#include "layers/remat_policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "base/error.h"

namespace mt::layers {
namespace {

struct Policy {
  std::string_view name;
  std::vector<std::string> saved;
};

const std::array<Policy, 9>& policies() {
  static const std::array<Policy, 9> kPolicies{{
      {"none", {}},
      {"full", {}},
      {"minimal_with_context",
       {"query_proj", "key_proj", "value_proj", "qkv_proj", "out_proj", "mlpwi_0", "mlpwi_1",
        "mlpwi", "mlpwo", "context"}},
      {"minimal",
       {"query_proj", "key_proj", "value_proj", "qkv_proj", "out_proj", "mlpwi_0", "mlpwi_1",
        "mlpwi", "mlpwo"}},
      {"save_dot_with_context_except_mlp",
       {"query_proj", "key_proj", "value_proj", "qkv_proj", "context", "out_proj"}},
      {"save_dot_except_mlpwi",
       {"query_proj", "key_proj", "value_proj", "qkv_proj", "out_proj", "mlpwo"}},
      {"save_dot_except_mlp", {"query_proj", "key_proj", "value_proj", "qkv_proj", "out_proj"}},
      {"save_qkv_proj", {"query_proj", "key_proj", "value_proj", "qkv_proj"}},
      {"save_out_proj", {"out_proj"}},
  }};
  return kPolicies;
}

}  // namespace

std::vector<std::string> remat_policy_names() {
  std::vector<std::string> names;
  for (const Policy& p : policies()) names.emplace_back(p.name);
  return names;
}

std::vector<std::string> saved_tags(std::string_view policy) {
  if (policy == "minimal_flash") policy = "minimal_with_context";  // its former name
  for (const Policy& p : policies()) {
    if (p.name == policy) return p.saved;
  }
  if (policy == "qkv_proj_offloaded" || policy == "minimal_offloaded") {
    throw fail(ErrorKind::kConfig,
               "remat_policy={} isn't supported yet: nothing is offloaded to the host", policy);
  }
  throw fail(ErrorKind::kConfig, "remat_policy={}: expected one of {}", policy,
             fmt::join(remat_policy_names(), ", "));
}

}  // namespace mt::layers
