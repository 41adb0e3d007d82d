// Two programs compared operation by operation.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/json.h"
#include "prove/program_text.h"

namespace mt::prove {

// One side's operation at the first difference.
struct DiffPlace {
  OpRecord op;
  // Of `op`, or, if nothing is said of it, of the operation that uses it, or else of the one
  // before.
  std::string module, source;
  bool nearby = false;  // the latter
};

struct ProgramDiff {
  std::string a, b;  // names
  size_t a_ops = 0, b_ops = 0;
  bool equal = true;
  size_t index = 0;                     // of the first difference
  std::optional<DiffPlace> at_a, at_b;  // empty: that program has ended
  int64_t differing = 0;  // operations that differ, place by place; -1: the numbers differ
  std::map<std::string, std::pair<int64_t, int64_t>> counts;  // by kind, where they differ
};

// Throws kConfig if one is StableHLO and the other HLO.
ProgramDiff compare(const ProgramText& a, const ProgramText& b);

std::string to_text(const ProgramDiff& diff);
Json to_json(const ProgramDiff& diff);

}  // namespace mt::prove
