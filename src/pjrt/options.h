// Compile options, written as the CompileOptionsProto that plugins read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>

namespace mt::pjrt {

// An XLA debug option's value ("xla_dump_to" -> "/tmp/x").
using XlaOptionValue = std::variant<std::string, bool, int64_t, double>;

struct CompileOptions {
  int64_t num_partitions = 1;  // devices that one run of the program uses
  bool shardy = true;          // shardings are Shardy's (sdy.*); used with more than one partition
  std::map<std::string, XlaOptionValue> xla;
};

// With what this program asks of XLA:CPU unless the caller says otherwise.
CompileOptions with_cpu_defaults(CompileOptions options);

std::string serialize(const CompileOptions& options);  // protobuf bytes, the same for equal options

}  // namespace mt::pjrt
