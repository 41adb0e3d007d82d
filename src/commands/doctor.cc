#include "commands/doctor.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/tensor.h"
#include "base/visible.h"
#include "commands/commands.h"
#include "commands/machine.h"
#include "config/config.h"
#include "config/paths.h"
#include "pjrt/array.h"
#include "pjrt/client.h"
#include "pjrt/executable.h"
#include "pjrt/plugin.h"
#include "train/memory.h"

namespace mt::commands {
namespace {

namespace fs = std::filesystem;
using State = Finding::State;

constexpr const char* kSetup = "run: make setup";
constexpr const char* kOnePlusOne = R"(module @one_plus_one {
  func.func public @main(%x: tensor<f32>) -> tensor<f32> {
    %sum = stablehlo.add %x, %x : tensor<f32>
    return %sum : tensor<f32>
  }
})";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// FOLDER/../name or FOLDER/name for the program's folder, whichever is there.
std::string beside_program(const char* name) {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  const fs::path above = folder.parent_path() / name;
  return (fs::is_directory(folder / name, error) ? folder / name : above).string();
}

float one_plus_one(const std::shared_ptr<pjrt::Client>& client) {
  const auto program = pjrt::Executable::compile(client, kOnePlusOne, {});
  auto x = pjrt::Array::from_host(client, Tensor::of<float>(DType::kF32, {}, {1.0F}));
  const std::array<pjrt::Array*, 1> arguments = {&x};
  const std::array<pjrt::ArrayTypeRef, 1> results = {pjrt::array_type(DType::kF32, {})};
  return program.execute(arguments, results)[0].to_host().data<float>()[0];
}

Finding examine_cpu_plugin() {
  Finding finding{State::kMissing, "cpu plugin", "", kSetup};
  try {
    const auto client = pjrt::Client::create({});
    const float sum = one_plus_one(client);
    finding.detail = fmt::format("{} (PJRT {}): 1 + 1 = {}", client->plugin().path(),
                                 client->plugin().api_version(), sum);
    if (sum == 2.0F) finding = {State::kOk, finding.name, finding.detail, ""};
  } catch (const std::exception& error) {
    finding.detail = error.what();
  }
  return finding;
}

// Only looks: opening a GPU or TPU plugin may take the device from a run that is under way.
Finding examine_other_plugin(const char* name, const char* wheel, const char* variable) {
  const auto path = pjrt::find_plugin(name);
  const std::string title = fmt::format("{} plugin", name);
  if (path) return {State::kOk, title, fmt::format("{} (not opened)", *path), ""};
  return {State::kAbsent, title, "not found",
          fmt::format("unpack the .so of PyPI's {} into .deps/pjrt/{}/, or set {}=FILE.so", wheel,
                      name, variable)};
}

Finding examine_file(State if_absent, const char* title, const fs::path& path, const char* fix) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) return {if_absent, title, fmt::format("{}: {}", path.string(), error.message()), fix};
  if (size == 0) return {if_absent, title, fmt::format("{}: is empty", path.string()), fix};
  if (access(path.c_str(), R_OK) != 0) {
    return {if_absent, title, fmt::format("{}: may not be read", path.string()),
            "change its permissions"};
  }
  return {State::kOk, title, fmt::format("{} ({} kB)", path.string(), (size + 999) / 1000), ""};
}

// A folder that is not there yet is fine if it can be made: the nearest one above it decides.
Finding examine_cache(const std::string& folder) {
  std::error_code error;
  fs::path there = folder;
  while (!there.empty() && !fs::exists(there, error) && there != there.parent_path()) {
    there = there.parent_path();
  }
  if (!there.empty() && fs::is_directory(there, error) && access(there.c_str(), W_OK) == 0) {
    return {State::kOk, "compile cache", folder + (there == folder ? "" : " (will be made)"), ""};
  }
  return {State::kAbsent, "compile cache", fmt::format("{}: can't be written", folder),
          "set jax_cache_dir=FOLDER to a folder of yours; without one each run compiles anew"};
}

void print_machine() {
  const Processor processor = this_processor();
  const train::RamStats ram = train::read_ram_stats();
  constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
  fmt::print("maxtext {} on this machine:\n", MT_VERSION);
  fmt::print("  processor  {}, {} cores\n", processor.name, processor.cores);
  fmt::print("             {}\n", describe_features(processor));
  fmt::print("  memory     {:.1f} GiB, {:.1f} GiB available\n",
             static_cast<double>(ram.total) / kGib,
             static_cast<double>(train::available_memory()) / kGib);
}

const char* mark(State state) {
  switch (state) {
    case State::kOk: return "ok";
    case State::kAbsent: return "absent";
    case State::kMissing: return "MISSING";
  }
  return "?";
}

}  // namespace

Places default_places() {
  Places places;
  places.deps = environment("MAXTEXT_DEPS");
  if (places.deps.empty()) places.deps = beside_program(".deps");
  places.configs = environment("MAXTEXT_CONFIGS");
  if (places.configs.empty()) places.configs = beside_program("configs");
  places.cache = config::home_folder(config::process_environment()) + "/jax_cache";
  return places;
}

std::vector<Finding> examine(const Places& places) {
  const fs::path weights = fs::path(places.deps) / "weights";
  return {
      examine_cpu_plugin(),
      examine_other_plugin("cuda", "jax-cuda13-pjrt", "MAXTEXT_PJRT_CUDA"),
      examine_other_plugin("tpu", "libtpu", "MAXTEXT_PJRT_TPU"),
      examine_file(State::kMissing, "configs", fs::path(places.configs) / "base.yml",
                   "set MAXTEXT_CONFIGS to the configs folder of the source tree"),
      examine_file(State::kAbsent, "weights", weights / "gemma-3-270m-Q4_K_M.gguf", kSetup),
      examine_file(State::kAbsent, "tokenizer", weights / "tokenizer.gemma3", kSetup),
      examine_cache(places.cache),
  };
}

std::string decoding_line(const std::vector<Finding>& findings) {
  const auto there = [&](std::string_view name) {
    return std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
      return finding.name == name && finding.state == State::kOk;
    });
  };
  if (!there("cpu plugin") || !there("configs")) return "Decoding on CPU does not work yet.";
  if (there("weights")) {
    return "Decoding on CPU works: load_parameters_path=FILE.gguf names weights with their "
           "tokenizer, such as those above.";
  }
  return "Decoding on CPU works, but needs weights: load_parameters_path=FILE.gguf, which brings "
         "its tokenizer, or safetensors and tokenizer_path=FILE; make setup fetches Gemma 3 270M.";
}

int doctor(const std::vector<std::string>& args) {
  if (args.size() == 1 && (args[0] == "--help" || args[0] == "-h")) {
    fmt::print(
        "usage: maxtext doctor\n\nPrints what this machine has and lacks for training and "
        "decoding, "
        "and how to get it.\nExit code: 0 if training on CPU works, else 4.\n");
    return 0;
  }
  if (!args.empty()) {
    throw fail(ErrorKind::kConfig, "doctor takes no arguments, found '{}'", args[0]);
  }
  print_machine();
  const auto findings = examine(default_places());
  for (const Finding& finding : findings) {
    fmt::print("  {:<8} {:<14} {}\n", mark(finding.state), finding.name, visible(finding.detail));
    if (!finding.fix.empty()) fmt::print("  {:<8} {:<14} -> {}\n", "", "", visible(finding.fix));
  }
  const bool works = std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.state == State::kMissing;
  });
  fmt::print("{}\n", works ? "Training on CPU works." : "Training on CPU does not work yet.");
  fmt::print("{}\n", decoding_line(findings));
  return works ? 0 : exit_code(ErrorKind::kDevice);
}

}  // namespace mt::commands
