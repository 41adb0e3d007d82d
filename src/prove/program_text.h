// Programs read from the text that MLIR (StableHLO) and XLA (HLO) print, one operation a line, in a
// form in which two programs that differ only in names, ids and metadata are the same: values,
// computations and symbols are numbered by first appearance, locations and metadata are set apart.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mt::prove {

struct OpRecord {
  std::string kind;    // "stablehlo.add", "dot", "argument", "result", "computation", "module"
  std::string text;    // normalised
  std::string module;  // what made it: "decoder/layers/layers_0/mlp/dot_general"; "" if not said
  std::string source;  // "src/layers/linear.cc:40"; "" if not said
  int64_t line = 0;    // of the text
};

enum class ProgramFormat : uint8_t { kStableHlo, kHlo };

struct ProgramText {
  std::string name;  // of the file or configuration
  ProgramFormat format = ProgramFormat::kStableHlo;
  std::vector<OpRecord> ops;  // in the order of the text; meshes and the module's attributes last
};

// Throws kIo, "NAME:LINE: ...", for text that is no such program: unbalanced brackets, an unclosed
// string, a value that is used but not defined, no module.
ProgramText read_program(std::string_view text, const std::string& name);

}  // namespace mt::prove
