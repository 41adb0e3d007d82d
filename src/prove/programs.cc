#include "prove/programs.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "models/gemma3/from_run.h"
#include "models/gemma3/session.h"
#include "plan/programs.h"
#include "train/from_run.h"

namespace mt::prove {
namespace {

using ir::Value;
using models::gemma3::Gemma3Model;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    path_ = (std::filesystem::temp_directory_path() / "maxtext_hlo_XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) {
      throw fail(ErrorKind::kIo, "{}: can't make a folder: {}", path_, std::strerror(errno));
    }
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Prefill of max_prefill_predict_length tokens or generation of one, on a row of its own, greedily.
std::string cached_text(const config::Config& config, const std::string& name, int64_t tokens,
                        const std::shared_ptr<const nnx::Partitioner>& partitioner) {
  models::gemma3::ModelOptions options = models::gemma3::options_from(config);
  options.cache.rows = 1;
  options.cache.length = config.integer("max_target_length");
  options.cache.dtype = options.dtype;
  Gemma3Model model(models::gemma3::sizes_from(config), options, partitioner);
  const std::vector<nnx::Input> inputs{{"tokens", {DType::kS32, {1, tokens}}, {}},
                                       {"start", {DType::kS32, {1}}, {}},
                                       {"count", {DType::kS32, {1}}, {}}};
  const auto traced =
      nnx::Traced::trace("jit_" + name, {&model}, inputs, *partitioner,
                         [&](ir::Graph&, const std::vector<Value>& in) -> std::vector<nnx::Output> {
                           layers::CachePass pass;
                           pass.start_b = in[1];
                           pass.count_b = in[2];
                           pass.tokens = tokens;
                           const Value hidden = model.hidden_with_cache(in[0], pass);
                           const Value last = ir::slice(hidden, {0, tokens - 1, 0}, hidden.shape());
                           return {model.token_embedder.attend(last)};
                         });
  return traced->lower().text();
}

}  // namespace

std::string stablehlo_of(const config::Config& config, const std::string& program,
                         const plan::Target& target) {
  const auto& partitioner = target.partitioner();
  if (program == "train") {
    return plan::trace_train_program(config, partitioner).traced->lower().text();
  }
  if (program == "prefill") {
    return cached_text(config, program, config.integer("max_prefill_predict_length"), partitioner);
  }
  if (program == "generate") return cached_text(config, program, 1, partitioner);
  if (program == "gradients" || program == "logits") {
    const auto model = models::gemma3::make_model(config, partitioner);
    const train::StepOptions options = train::step_options_from(config, *partitioner);
    const auto traced = program == "logits"
                            ? train::trace_logits(*model, options.batch_rows, options.length)
                            : train::trace_gradients(*model, options);
    return traced->lower().text();
  }
  throw fail(ErrorKind::kConfig,
             "there is no program '{}': expected train, gradients, logits, prefill or generate",
             program);
}

std::string optimized_of(const std::string& stablehlo, const plan::Target& target) {
  const TemporaryFolder folder;
  pjrt::CompileOptions options;
  options.xla["xla_dump_to"] = folder.path();
  options.xla["xla_dump_hlo_module_re"] = std::string(".*");
  options.xla["xla_dump_hlo_as_text"] = true;
  options.xla["xla_dump_large_constants"] = true;
  target.compile(stablehlo, options);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    const std::string path = entry.path().string();
    if (path.ends_with("after_optimizations.txt")) return read_file(path);
  }
  throw fail(ErrorKind::kDevice, "{}: its compiler gave no text of the optimised program",
             target.description());
}

ProgramText program_of(const config::Config& config, const std::string& program, Stage stage,
                       const std::string& label) {
  const plan::Target target = plan::Target::open(config);
  std::string text = stablehlo_of(config, program, target);
  if (stage == Stage::kOptimized) text = optimized_of(text, target);
  return read_program(text, label);
}

}  // namespace mt::prove
