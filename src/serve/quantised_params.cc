#include "serve/quantised_params.h"

#include <filesystem>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/temporary_file.h"
#include "data/open_tokenizer.h"
#include "models/gemma3/to_gguf.h"
#include "models/gemma3/weights_quantised.h"

namespace mt::serve {
namespace {

using models::gemma3::Quantization;
using models::gemma3::WeightSource;

void check_save_path(const std::string& path, const std::string& weights) {
  if (!path.ends_with(".gguf")) {
    throw fail(ErrorKind::kConfig,
               "save_quantized_params_path={}: a GGUF file is written; give it "
               "a name that ends in .gguf",
               path);
  }
  std::error_code none;
  if (std::filesystem::equivalent(path, weights, none)) {
    throw fail(ErrorKind::kConfig,
               "save_quantized_params_path={}: that is load_parameters_path; the weights would be "
               "lost",
               path);
  }
  try {
    const checkpoint::TemporaryFile tried(path);  // and gone again
  } catch (const Error& error) {
    throw fail(ErrorKind::kIo, "save_quantized_params_path: {}", error.what());
  }
}

// The run's tokenizer, so that the file needs no other.
void add_tokenizer(checkpoint::GgufMetadata& metadata, const config::Config& config) {
  const std::string& weights = config.text("load_parameters_path");
  std::string path = config.text("tokenizer_path");
  if (path.empty() && weights.ends_with(".gguf")) path = weights;
  const int64_t rows = config.integer("vocab_size");
  auto vocabulary = path.empty() ? std::nullopt : data::open_tokenizer(path, rows).vocabulary();
  if (vocabulary) return data::put_vocabulary(metadata, std::move(*vocabulary), rows);
  log_line(
      "The file of save_quantized_params_path has no tokenizer in it: {}. Decoding from it "
      "needs tokenizer_path.",
      path.empty() ? "tokenizer_path is not set" : "a GGUF file can't express " + path);
}

void save(const WeightSource& source, Quantization quantization,
          const models::gemma3::Gemma3Config& sizes, const config::Config& config) {
  constexpr int64_t kMostlyQ80 = 7, kMostlyQ40 = 2;  // llama.cpp's general.file_type
  const std::string& path = config.text("save_quantized_params_path");
  auto metadata = models::gemma3::gguf_metadata(
      sizes, quantization == Quantization::kInt8 ? kMostlyQ80 : kMostlyQ40);
  add_tokenizer(metadata, config);
  const size_t bytes = models::gemma3::write_gguf(path, source, sizes, metadata);
  log_line("Saved the quantised weights: {} ({:.1f} MB)", path, static_cast<double>(bytes) / 1e6);
}

}  // namespace

void check_quantization_keys(const config::Config& config) {
  const std::string& quantization = config.text("quantization");
  const std::string& path = config.text("save_quantized_params_path");
  const std::string& weights = config.text("load_parameters_path");
  if (quantization.empty()) {
    if (path.empty()) return;
    throw fail(ErrorKind::kConfig,
               "save_quantized_params_path={} needs quantization=int8 or quantization=int4", path);
  }
  if (weights.empty()) {
    throw fail(ErrorKind::kConfig,
               "quantization={} needs load_parameters_path: random weights are not quantised",
               quantization);
  }
  if (!path.empty()) check_save_path(path, weights);
}

void check_quantization(const config::Config& config, bool one_cpu) {
  check_quantization_keys(config);
  if (one_cpu || config.text("quantization").empty()) return;
  throw fail(ErrorKind::kConfig,
             "quantization={}: only one CPU device computes with quantised blocks; set "
             "hardware=cpu and no parallelism, or leave quantization out",
             config.text("quantization"));
}

std::unique_ptr<WeightSource> open_params_of(const models::gemma3::Gemma3Model& model,
                                             const config::Config& config) {
  auto source = models::gemma3::open_weights(model, config);
  const auto to = models::gemma3::parse_quantization(config.text("quantization"));
  if (source == nullptr || !to) return source;
  const std::string& weights = config.text("load_parameters_path");
  auto blocks = models::gemma3::quantised(std::move(source), model.config(),
                                          {*to, weights, config.flag("dequantize_weights")});
  const std::string& path = config.text("save_quantized_params_path");
  log_line("Quantising the matrices of {} to {}.", weights, config.text("quantization"));
  if (path.empty()) return blocks;
  save(*blocks, *to, model.config(), config);
  return WeightSource::open(path, model.options().dtype);
}

}  // namespace mt::serve
