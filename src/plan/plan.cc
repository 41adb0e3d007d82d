#include "plan/plan.h"

#include <chrono>

namespace mt::plan {

PlannedProgram compile_program(const TracedProgram& program, const Target& target) {
  PlannedProgram out;
  out.name = program.name;
  const auto start = std::chrono::steady_clock::now();
  const nnx::Lowered lowered = program.traced->lower();
  out.trace_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  out.facts = target.compile(lowered.text(), {});
  return out;
}

int64_t bytes_needed(const pjrt::ProgramMemory& m) {
  return m.arguments + m.outputs - m.aliased + m.temporaries + m.code;
}

Fit fit(const pjrt::ProgramMemory& memory, const Target& target) {
  Fit out;
  out.needed = bytes_needed(memory) * (target.shares_host_memory() ? target.device_count() : 1);
  out.available = target.memory();
  out.fits = out.available > 0 && out.needed <= out.available;
  return out;
}

}  // namespace mt::plan
