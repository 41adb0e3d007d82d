#include "prove/program_text.h"

#include "prove/program_lines.h"

namespace mt::prove {

ProgramText read_program(std::string_view text, const std::string& name) {
  for (const SourceLine& line : lines_of(text)) {
    if (line.text.starts_with("HloModule ")) return read_hlo(text, name);
    const bool header = line.text.starts_with("module") || line.text.starts_with("#") ||
                        line.text.starts_with("\"builtin.module\"");
    if (header) return read_stablehlo(text, name);
    throw fail(ErrorKind::kIo, "{}:{}: no program: expected 'module' (StableHLO) or 'HloModule'",
               name, line.number);
  }
  throw fail(ErrorKind::kIo, "{}:1: no program: the text is empty", name);
}

}  // namespace mt::prove
