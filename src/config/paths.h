// Paths among the keys: what ~ means, and what is no path on this machine.
#pragma once

#include <map>
#include <string>

namespace mt::config {

// $HOME, or, where it is not set or empty, the user's folder in the system's list; "" if neither
// says.
std::string home_folder(const std::map<std::string, std::string>& environment);

// `path` of `key` with ~ as the home folder. Throws kConfig if there is none, and for gs://... and
// the like, which would make a folder of that name.
std::string local_path(const std::string& key, const std::string& path, const std::string& home);

// Throws kConfig if BASE/run_name/ would lie outside BASE.
void check_run_name(const std::string& run_name);

}  // namespace mt::config
