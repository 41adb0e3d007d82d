#include "commands/plan.h"

#include <fmt/core.h>

#include "base/log.h"
#include "config/config.h"
#include "plan/plan.h"
#include "train/from_run.h"
#include "train/log_lines.h"

namespace mt::commands {
namespace {

constexpr double kGib = 1073741824.0;

constexpr const char* kHelp = R"(usage: maxtext plan [CONFIG.yml] key=value ...

Compiles the training step of a configuration, for this machine's devices or (compile_topology=v5p-8)
for a machine that isn't here, and says what it needs: nothing is allocated, nothing is run.
docs/PLANNING.md explains the output.

)";

double gib(int64_t bytes) { return static_cast<double>(bytes) / kGib; }

void report_memory(const pjrt::ProgramMemory& m) {
  const train::CompiledMemory memory{m.outputs, m.temporaries, m.arguments, m.aliased,
                                     m.host_temporaries};
  log_text(train::memory_analysis_line(memory));
  log_text(train::memory_analysis_note(memory));
  log_line("Bytes on one device: argument {}, output {}, alias {}, temp {}, code {}", m.arguments,
           m.outputs, m.aliased, m.temporaries, m.code);
}

void report_fit(const plan::Fit& fit, const plan::Target& target, const config::Config& config) {
  const char* where = target.shares_host_memory() ? "on all devices together" : "on each device";
  if (fit.available == 0) {
    log_line("It needs {:.2f} GiB {}; how much there is isn't known.", gib(fit.needed), where);
  } else if (fit.fits) {
    log_line("It fits: {:.2f} of {:.2f} GiB {}.", gib(fit.needed), gib(fit.available), where);
  } else {
    std::string changes;
    for (const auto& c : train::memory_suggestions(train::memory_settings_from(config))) {
      changes += (changes.empty() ? "" : ", ") + c;
    }
    log_line("It does not fit: {:.2f} of {:.2f} GiB {}, {:.2f} GiB too much; what may help: {}.",
             gib(fit.needed), gib(fit.available), where, gib(fit.needed - fit.available), changes);
  }
}

}  // namespace

int plan(const std::vector<std::string>& args) {
  for (const std::string& word : args) {
    if (word != "--help" && word != "-h") continue;
    fmt::print("{}{}", kHelp, config::help("Planning"));
    return 0;
  }
  const auto config = config::Config::load(args, config::process_environment());
  const plan::Target target = plan::Target::open(config);
  log_line("Planning for {}", target.description());
  const plan::TracedProgram program = plan::trace_train_program(config, target.partitioner());
  const plan::PlannedProgram planned = plan::compile_program(program, target);
  log_line("Compiled the {} in {:.1f} s.", planned.name, planned.facts.seconds);
  report_memory(planned.facts.memory);
  const train::StepFlops flops = plan::step_flops_from(config);
  log_text(train::per_train_step_lines(flops.weight_tflops, flops.attention_tflops));
  report_fit(plan::fit(planned.facts.memory, target), target, config);
  return 0;
}

}  // namespace mt::commands
