// maxtext doctor: what is there, what is missing, and how to get it.
#pragma once

#include <string>
#include <vector>

namespace mt::commands {

struct Finding {
  enum class State {
    kOk,
    kAbsent,   // something optional that is not there
    kMissing,  // training on CPU needs it
  };
  State state = State::kOk;
  std::string name;    // "cpu plugin"
  std::string detail;  // what there is, or why there is none
  std::string fix;     // how to get it; empty if kOk
};

// Folders that doctor looks into.
struct Places {
  std::string deps;     // what scripts/setup.sh fills
  std::string configs;  // base.yml and models/
  std::string cache;    // compiled programs (jax_cache_dir)
};

// $MAXTEXT_DEPS, $MAXTEXT_CONFIGS or beside the program; ~/jax_cache.
Places default_places();

// Opens the CPU plugin and runs 1 + 1 on it; never throws for something that is missing.
std::vector<Finding> examine(const Places& places);

// One line: whether decoding can begin, or what it needs.
std::string decoding_line(const std::vector<Finding>& findings);

// Prints the machine and the findings. Returns 0 if training on CPU works, else 4.
int doctor(const std::vector<std::string>& args);

}  // namespace mt::commands
