// Compiled programs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pjrt/array.h"
#include "pjrt/cache.h"
#include "pjrt/client.h"
#include "pjrt/options.h"
#include "pjrt/program.h"

struct PJRT_LoadedExecutable;

namespace mt::pjrt {

class Executable {
 public:
  // `program` is StableHLO text. With a cache, a program compiled before is loaded instead.
  // Throws kDevice with the compiler's text, kLimit if the device is out of memory.
  static Executable compile(std::shared_ptr<const Client> client, std::string_view program,
                            const CompileOptions& options, CompileCache* cache = nullptr);
  // Throws kDevice if this plugin didn't write these bytes.
  static Executable deserialize(std::shared_ptr<const Client> client, std::string_view bytes);
  ~Executable();
  Executable(Executable&& other) noexcept;
  Executable& operator=(Executable&& other) noexcept;

  // Starts a run and returns; errors that come later are thrown by await() and to_host() of the
  // results. `donated` lists positions in `arguments`: those arrays are consumed, also when the
  // start fails; the program must alias them (tf.aliasing_output) for their memory to be reused.
  // Arguments not listed stay valid whatever the program says. One type per result.
  // Throws kDevice: consumed argument, wrong number of arguments, results or devices, a result
  // whose type isn't what the program makes, or the plugin's own refusal.
  std::vector<Array> execute(std::span<Array* const> arguments,
                             std::span<const ArrayTypeRef> results,
                             std::span<const int64_t> donated = {}) const;

  int64_t num_partitions() const { return num_partitions_; }
  int64_t num_outputs() const { return num_outputs_; }
  bool from_cache() const { return from_cache_; }
  // What the compiler says about it.
  const Program& program() const { return program_; }
  ProgramMemory memory_stats() const { return program_.memory_stats(); }
  std::map<std::string, double> cost_analysis() const { return program_.cost_analysis(); }
  OptimizedProgram optimized_program() const { return program_.optimized_program(); }
  std::string serialize() const { return program_.serialize(); }
  std::string fingerprint() const { return program_.fingerprint(); }

 private:
  Executable(std::shared_ptr<const Client> client, PJRT_LoadedExecutable* loaded);
  void destroy() noexcept;
  void start(const std::vector<PJRT_Buffer*>& in, std::vector<PJRT_Buffer*>& out,
             const std::vector<int64_t>& kept) const;
  void check_results(std::span<const ArrayTypeRef> results) const;
  void check_result_types(const std::vector<std::vector<Buffer>>& buffers,
                          std::span<const ArrayTypeRef> results) const;

  std::shared_ptr<const Client> client_;
  PJRT_LoadedExecutable* loaded_ = nullptr;
  Program program_;
  int64_t num_partitions_ = 1;
  int64_t num_outputs_ = 0;
  bool from_cache_ = false;
};

}  // namespace mt::pjrt
