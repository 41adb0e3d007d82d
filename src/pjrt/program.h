// What a plugin's compiler made of a program, and says about it; whether or not it can run here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "pjrt/plugin.h"

struct PJRT_Executable;

namespace mt::pjrt {

struct ProgramMemory {  // bytes on each device
  int64_t arguments = 0;
  int64_t outputs = 0;
  int64_t aliased = 0;  // outputs that reuse a donated argument
  int64_t temporaries = 0;
  int64_t code = 0;
  int64_t host_temporaries = 0;
  int64_t peak = 0;  // 0 where the plugin doesn't say
  // What a run needs, its arguments included.
  int64_t total() const { return arguments + outputs - aliased + temporaries + code; }
};

struct OptimizedProgram {
  std::string format;  // "hlo", "hlo_with_config": serialised protos; "mlir"
  std::string bytes;
};

class Program {
 public:
  Program() = default;  // empty: only to be assigned to
  // Owns `executable`.
  Program(std::shared_ptr<const Plugin> plugin, PJRT_Executable* executable);
  ~Program();
  Program(Program&& other) noexcept;
  Program& operator=(Program&& other) noexcept;

  ProgramMemory memory_stats() const;
  // "flops", "bytes accessed", ...; empty if the plugin has no such thing (CPU). A loop's body is
  // counted once.
  std::map<std::string, double> cost_analysis() const;
  OptimizedProgram optimized_program() const;
  std::string serialize() const;
  std::string fingerprint() const;  // empty if the plugin has none

  PJRT_Executable* raw() const { return executable_; }  // for this room

 private:
  std::shared_ptr<const Plugin> plugin_;
  PJRT_Executable* executable_ = nullptr;
};

}  // namespace mt::pjrt
