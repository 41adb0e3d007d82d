#include "models/gemma3/weights.h"

#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/gguf.h"
#include "models/gemma3/from_gguf.h"
#include "models/gemma3/from_hf.h"
#include "models/gemma3/weight_names.h"
#include "models/gemma3/weight_sources.h"

namespace mt::models::gemma3 {
namespace {

// What config.json says, in the folder or beside the file.
ForeignFormat format_beside(const std::string& path, DType activation) {
  ForeignFormat format{false, {}, {}, activation};
  struct stat info {};
  std::string folder = path;
  if (::stat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    const size_t slash = path.rfind('/');
    folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  }
  const std::string file = folder + "/config.json";
  if (!exists(file)) return format;
  try {
    const Json json = Json::parse(read_file(file));
    format.config = config_from_hf(json);
    format.numbers = numbers_from_hf(json, folder);
    return format;
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", folder, error.what()));
  }
}

}  // namespace

std::vector<NamedShape> weight_shapes(const Gemma3Config& config) {
  std::vector<NamedShape> out;
  out.push_back({std::string(kEmbeddingName), {config.vocab_size, config.emb_dim}});
  for (int64_t layer = 0; layer < config.num_decoder_layers; ++layer) {
    for (const Leaf& leaf : layer_leaves()) {
      out.push_back({layer_name(layer, leaf.maxtext), leaf.shape(config)});
    }
  }
  out.push_back({std::string(kFinalNormName), {config.emb_dim}});
  return out;
}

std::unique_ptr<WeightSource> WeightSource::open(const std::string& path, DType activation) {
  ReaderPtr reader = checkpoint::open(path);
  if (const auto* gguf = dynamic_cast<const checkpoint::GgufFile*>(reader.get())) {
    ForeignFormat format{true, config_from_gguf(*gguf), numbers_from_gguf(*gguf), activation};
    return make_foreign_source(std::move(reader), std::move(format));
  }
  if (has_maxtext_names(*reader)) return make_maxtext_source(std::move(reader));
  return make_foreign_source(std::move(reader), format_beside(path, activation));
}

StoredMatrix stored_as(StoredMatrix matrix, DType dtype) {
  const bool taken = dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
  matrix.dtype = taken ? dtype : DType::kF32;
  matrix.block_type = checkpoint::find_block_format(matrix.dtype == DType::kF16    ? "F16"
                                                    : matrix.dtype == DType::kBF16 ? "BF16"
                                                                                   : "F32")
                          ->id;
  return matrix;
}

}  // namespace mt::models::gemma3
