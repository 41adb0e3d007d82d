// MaxText's rematerialisation policies: which tagged values the backward pass keeps.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mt::layers {

// "none" and "full" keep nothing but each layer's input; the others are MaxText's lists. Throws
// kConfig for unknown names (the known ones are listed) and for those that offload to the host.
std::vector<std::string> saved_tags(std::string_view policy);
std::vector<std::string> remat_policy_names();

}  // namespace mt::layers
