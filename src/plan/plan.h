// A plan: what a configuration's programs need on a target, found by compiling them and no more.
#pragma once

#include <string>

#include "plan/programs.h"
#include "plan/target.h"

namespace mt::plan {

struct PlannedProgram {
  std::string name;
  CompiledFacts facts;
  double trace_seconds = 0;
};

PlannedProgram compile_program(const TracedProgram& program, const Target& target);

// Bytes that must be there at once for the program to run, on one device.
int64_t bytes_needed(const pjrt::ProgramMemory& memory);

struct Fit {
  bool fits = false;
  int64_t needed = 0;     // on one device, or on all where they share the host's memory
  int64_t available = 0;  // 0: not known
};
Fit fit(const pjrt::ProgramMemory& memory, const Target& target);

}  // namespace mt::plan
