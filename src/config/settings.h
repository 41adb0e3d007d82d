// The layers of settings, merged: table defaults, YAML files, environment, command line, model
// file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/value.h"

namespace mt::config {

struct Settings {
  std::vector<Value> values;            // by index in all_keys()
  std::vector<bool> from_user;          // set by the command line or M_*
  std::vector<std::string> user_keys;   // those, in the order of the table
  std::vector<std::string> model_keys;  // set by the model file, in its order
  std::string config_path;              // "" if none was named and none is packaged
};

// What Config::load does before anything is derived. Each value is checked by itself.
Settings read_settings(const std::vector<std::string>& args,
                       const std::map<std::string, std::string>& environment);

}  // namespace mt::config
