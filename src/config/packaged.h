// The configs folder that comes with the program: base.yml, models/, maxtext_keys.txt.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace mt::config {

// MAXTEXT_CONFIGS if set (kConfig if there is no base.yml in it), else ../configs or
// ../share/maxtext/configs of the program's folder, or configs of it; "" if none has a base.yml.
std::string packaged_folder(const std::map<std::string, std::string>& environment);

// Whether `key` is one of MaxText's that has no row in our table. False if the list isn't found.
bool is_maxtext_key(const std::string& folder, std::string_view key);

// Names of the models in FOLDER/models, sorted.
std::vector<std::string> model_names(const std::string& folder);

}  // namespace mt::config
