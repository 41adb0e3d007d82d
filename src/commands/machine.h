// What the processor of this machine is and can do.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mt::commands {

struct Processor {
  std::string name;                // "unknown" if the system does not say
  int cores = 0;                   // that this process may use
  std::vector<std::string> flags;  // as in /proc/cpuinfo, of the first core

  bool has(std::string_view flag) const;
};

// `text` is /proc/cpuinfo's; cores is left at 0.
Processor parse_cpuinfo(std::string_view text);
Processor this_processor();

// What matters for speed: "AVX2, FMA, AVX-512", or "no AVX2 or later (slow)".
std::string describe_features(const Processor& processor);

}  // namespace mt::commands
