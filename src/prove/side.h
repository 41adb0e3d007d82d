// One of two sides of a comparison, as the command line names it.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace mt::prove {

// "configs/base.yml scan_layers=false": words of a configuration in one text, with `shared` words
// that go for both sides and give way to the side's own.
std::vector<std::string> words_of_side(const std::string& side,
                                       const std::vector<std::string>& shared);
config::Config load_side(const std::string& side, const std::vector<std::string>& shared);

// Whether a word names a configuration: empty, a .yml file, or with key=value words. Else a file.
bool is_configuration(const std::string& side);

}  // namespace mt::prove
