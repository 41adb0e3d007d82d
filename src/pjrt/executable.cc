#include "pjrt/executable.h"

#include <algorithm>
#include <utility>

#include "pjrt/api.h"

namespace mt::pjrt {
namespace {

PJRT_LoadedExecutable* compile_with(const Client& client, std::string_view program,
                                    const std::string& options) {
  std::string code(program);  // the C struct wants a pointer to non-const
  PJRT_Program text{};
  text.struct_size = PJRT_Program_STRUCT_SIZE;
  text.code = code.data();
  text.code_size = code.size();
  text.format = "mlir";
  text.format_size = 4;
  PJRT_Client_Compile_Args args{};
  args.client = client.raw();
  args.program = &text;
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  call(client.api(), args);
  return args.executable;
}

PJRT_LoadedExecutable* compile_program(const Client& client, std::string_view program,
                                       const CompileOptions& given) {
  const CompileOptions options = client.is_cpu() ? with_cpu_defaults(given) : given;
  try {
    return compile_with(client, program, serialize(options));
  } catch (const Error& error) {
    // A plugin of another age may not know a default of ours; what the user asked for stands.
    const std::string_view text = error.what();
    for (const auto& [name, value] : options.xla) {
      if (given.xla.count(name) == 0 && text.find(name) != std::string_view::npos) {
        return compile_with(client, program, serialize(given));
      }
    }
    throw;
  }
}

void check_arguments(std::span<Array* const> arguments, int64_t devices) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto have = static_cast<int64_t>(arguments[i]->buffers().size());
    if (have != devices) {
      throw fail(ErrorKind::kDevice, "argument {} lies on {} devices, the program runs on {}", i,
                 have, devices);
    }
  }
}

// A donated array is gone afterwards, so it may be passed once only.
void check_donated(std::span<Array* const> arguments, std::span<const int64_t> donated) {
  std::vector<const Array*> sorted(arguments.begin(), arguments.end());
  std::sort(sorted.begin(), sorted.end());
  for (const int64_t i : donated) {
    MT_CHECK(i >= 0 && i < static_cast<int64_t>(arguments.size()));
    const Array* array = arguments[static_cast<size_t>(i)];
    const auto same = std::equal_range(sorted.begin(), sorted.end(), array);
    if (same.second - same.first > 1) {
      throw fail(ErrorKind::kDevice, "argument {} is donated and passed more than once", i);
    }
  }
}

// [device][argument], in one block.
std::vector<PJRT_Buffer*> argument_table(std::span<Array* const> arguments, size_t devices) {
  std::vector<PJRT_Buffer*> table(devices * arguments.size());
  for (size_t a = 0; a < arguments.size(); ++a) {
    const std::vector<Buffer>& buffers = arguments[a]->buffers();
    for (size_t d = 0; d < devices; ++d) table[d * arguments.size() + a] = buffers[d].raw();
  }
  return table;
}

// Positions that aren't donated.
std::vector<int64_t> others(size_t count, std::span<const int64_t> donated) {
  std::vector<char> is_donated(count, 0);
  for (const int64_t i : donated) is_donated[static_cast<size_t>(i)] = 1;
  std::vector<int64_t> out;
  for (size_t i = 0; i < count; ++i) {
    if (is_donated[i] == 0) out.push_back(static_cast<int64_t>(i));
  }
  return out;
}

}  // namespace

Executable Executable::compile(std::shared_ptr<const Client> client, std::string_view program,
                               const CompileOptions& options, CompileCache* cache) {
  Hash128 key;
  if (cache != nullptr) {
    key = cache->key(*client, program, options);
    if (const auto bytes = cache->load(key)) {
      try {
        Executable loaded = deserialize(client, *bytes);
        loaded.from_cache_ = true;
        return loaded;
      } catch (const Error&) {
        // Whatever the plugin dislikes about the entry: compile, and overwrite it.
      }
    }
  }
  PJRT_LoadedExecutable* raw = compile_program(*client, program, options);
  Executable compiled(std::move(client), raw);
  if (cache != nullptr) {
    try {
      cache->store(key, compiled.serialize());
    } catch (const Error&) {
      // A plugin that can't serialise this program still runs it.
    }
  }
  return compiled;
}

Executable Executable::deserialize(std::shared_ptr<const Client> client, std::string_view bytes) {
  PJRT_Executable_DeserializeAndLoad_Args args{};
  args.client = client->raw();
  args.serialized_executable = bytes.data();
  args.serialized_executable_size = bytes.size();
  call(client->api(), args);
  return Executable(std::move(client), args.loaded_executable);
}

Executable::Executable(std::shared_ptr<const Client> client, PJRT_LoadedExecutable* loaded)
    : client_(std::move(client)), loaded_(loaded) {
  try {
    PJRT_LoadedExecutable_GetExecutable_Args get{};
    get.loaded_executable = loaded_;
    call(client_->api(), get);
    program_ = Program(client_->shared_plugin(), get.executable);
    PJRT_Executable_NumPartitions_Args partitions{};
    partitions.executable = program_.raw();
    call(client_->api(), partitions);
    num_partitions_ = static_cast<int64_t>(partitions.num_partitions);
    PJRT_Executable_NumOutputs_Args outputs{};
    outputs.executable = program_.raw();
    call(client_->api(), outputs);
    num_outputs_ = static_cast<int64_t>(outputs.num_outputs);
  } catch (...) {
    destroy();
    throw;
  }
}

Executable::~Executable() { destroy(); }

Executable::Executable(Executable&& other) noexcept
    : client_(std::move(other.client_)),
      loaded_(std::exchange(other.loaded_, nullptr)),
      program_(std::move(other.program_)),
      num_partitions_(other.num_partitions_),
      num_outputs_(other.num_outputs_),
      from_cache_(other.from_cache_) {}

Executable& Executable::operator=(Executable&& other) noexcept {
  if (this != &other) {
    destroy();
    client_ = std::move(other.client_);
    loaded_ = std::exchange(other.loaded_, nullptr);
    program_ = std::move(other.program_);
    num_partitions_ = other.num_partitions_;
    num_outputs_ = other.num_outputs_;
    from_cache_ = other.from_cache_;
  }
  return *this;
}

void Executable::destroy() noexcept {
  program_ = {};
  if (loaded_ != nullptr) {
    PJRT_LoadedExecutable_Destroy_Args args{};
    args.executable = std::exchange(loaded_, nullptr);
    call_quietly(client_->api(), args);
  }
}

std::vector<Array> Executable::execute(std::span<Array* const> arguments,
                                       std::span<const ArrayTypeRef> results,
                                       std::span<const int64_t> donated) const {
  check_arguments(arguments, num_partitions_);
  if (!donated.empty()) check_donated(arguments, donated);
  check_results(results);
  const auto devices = static_cast<size_t>(num_partitions_);
  const auto outputs = static_cast<size_t>(num_outputs_);
  const std::vector<PJRT_Buffer*> in = argument_table(arguments, devices);
  std::vector<PJRT_Buffer*> out(devices * outputs, nullptr);
  const std::vector<int64_t> kept = others(arguments.size(), donated);
  // Whatever start does with them, afterwards the donated arrays are gone.
  std::vector<std::vector<Buffer>> consumed;
  for (const int64_t i : donated) consumed.push_back(arguments[static_cast<size_t>(i)]->consume());
  start(in, out, kept);

  std::vector<std::vector<Buffer>> buffers(outputs);
  for (size_t r = 0; r < outputs; ++r) {
    for (size_t d = 0; d < devices; ++d) buffers[r].emplace_back(client_, out[d * outputs + r]);
  }
  check_result_types(buffers, results);
  std::vector<Array> arrays;
  arrays.reserve(outputs);
  for (size_t r = 0; r < outputs; ++r) {
    arrays.emplace_back(client_, results[r], std::move(buffers[r]));
  }
  return arrays;
}

void Executable::start(const std::vector<PJRT_Buffer*>& in, std::vector<PJRT_Buffer*>& out,
                       const std::vector<int64_t>& kept) const {
  const auto devices = static_cast<size_t>(num_partitions_);
  const size_t arguments = in.size() / devices;
  std::vector<PJRT_Buffer* const*> in_lists;
  std::vector<PJRT_Buffer**> out_lists;
  for (size_t d = 0; d < devices; ++d) {
    in_lists.push_back(in.data() + d * arguments);
    out_lists.push_back(out.data() + d * static_cast<size_t>(num_outputs_));
  }
  PJRT_ExecuteOptions options{};
  options.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE;
  options.non_donatable_input_indices = kept.data();
  options.num_non_donatable_input_indices = kept.size();
  PJRT_LoadedExecutable_Execute_Args args{};
  args.executable = loaded_;
  args.options = &options;
  args.argument_lists = in_lists.data();
  args.num_devices = devices;
  args.num_args = arguments;
  args.output_lists = out_lists.data();
  const auto launch = [&](bool with_events) {
    std::vector<PJRT_Event*> events(with_events ? devices : 0, nullptr);
    args.device_complete_events = with_events ? events.data() : nullptr;
    if (PJRT_Error* error = try_call(client_->api(), args)) {
      throw take_error(client_->api(), error, "running a program");
    }
    return events;
  };
  if (devices > 1) {
    client_->launch_in_turn([&] { return launch(client_->is_cpu()); });
  } else if (num_outputs_ == 0) {  // nothing that would carry an error
    Event(client_, launch(true)[0]).await();
  } else {
    launch(false);
  }
}

void Executable::check_results(std::span<const ArrayTypeRef> results) const {
  if (static_cast<int64_t>(results.size()) != num_outputs_) {
    throw fail(ErrorKind::kDevice, "{} result types given, the program has {} results",
               results.size(), num_outputs_);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const int64_t devices = results[i]->mesh.device_count();
    if (devices == num_partitions_) continue;
    throw fail(ErrorKind::kDevice, "result {} was to lie on {} devices, the program runs on {}", i,
               devices, num_partitions_);
  }
}

// The buffers say what the program really makes; once is enough for one set of types, but the
// look is cheap beside a run.
void Executable::check_result_types(const std::vector<std::vector<Buffer>>& buffers,
                                    std::span<const ArrayTypeRef> results) const {
  for (size_t i = 0; i < results.size(); ++i) {
    const Buffer& buffer = buffers[i].front();
    const Shape expected = results[i]->shard_shape();
    const Shape shape = buffer.shape();
    const DType dtype = buffer.dtype();
    if (shape == expected && dtype == results[i]->dtype) continue;
    throw fail(ErrorKind::kDevice, "result {} is {}{} on a device, expected {}{}", i, name(dtype),
               to_string(shape), name(results[i]->dtype), to_string(expected));
  }
}

}  // namespace mt::pjrt
