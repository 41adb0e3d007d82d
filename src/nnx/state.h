// State: the variables of a module as a flat, ordered list, apart from the module (flax.nnx's
// functional half). split() copies them out, update() and merge() put them back.
#pragma once

#include <string>
#include <vector>

#include "nnx/filter.h"
#include "nnx/module.h"

namespace mt::nnx {

struct State {
  struct Entry {
    std::string path;
    Variable variable;  // a copy; abstract if it has neither value nor array
  };
  std::vector<Entry> entries;

  const Variable* find(std::string_view path) const;
  int64_t element_count() const;
  int64_t byte_count() const;
  State filter(const Filter& filter) const;
  std::vector<ir::Value> values() const;
};

// The variables that the filter takes.
State state(Module& module, const Filter& filter = everything());
// One State a filter; the first filter that takes a variable gets it. Throws kConfig, naming the
// variable, if no filter takes one.
std::vector<State> split(Module& module, const std::vector<Filter>& filters);
// Writes values and arrays back by path. Throws kConfig for a path the module doesn't have, or a
// type that differs.
void update(Module& module, const State& state);
// update() with several states.
void merge(Module& module, const std::vector<State>& states);

// Abstract state: paths, types and axes, nothing allocated. What a module is before init.
State eval_shape(Module& module);

// "path | kind | shape | axes | size" with totals by kind; `depth` groups deeper paths (0: all).
std::string tabulate(Module& module, int depth = 0);
// An indented tree of modules and variables.
std::string display(Module& module);

}  // namespace mt::nnx
