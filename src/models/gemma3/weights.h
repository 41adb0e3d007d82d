// Gemma 3's weights under MaxText's names and conventions, from a Hugging Face folder, a GGUF file,
// or safetensors with MaxText's own names.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "base/tensor.h"
#include "models/gemma3/config.h"
#include "models/gemma3/source_numbers.h"

namespace mt::models::gemma3 {

// A logical name is MaxText's unscanned path without "params/": "token_embedder/embedding",
// "decoder/decoder_norm/scale", "decoder/layers_3/self_attention/query/kernel".
struct NamedShape {
  std::string name;
  Shape shape;
};

// Every weight of a model: the table, then the layers in order, then the final norm.
std::vector<NamedShape> weight_shapes(const Gemma3Config& config);

// A matrix as products with few rows want it, [out, in]: u8 [rows, row_bytes] in the blocks of its
// file, or floats [rows, columns].
struct StoredMatrix {
  int64_t block_type = -1;  // ggml's number, of floats too
  DType dtype = DType::kU8;
  int64_t rows = 0, columns = 0, row_bytes = 0;  // the last one of blocks only
  bool multiplied = false;  // of the embedding: by sqrt(emb_dim), as MaxText stores it

  Shape shape() const { return {rows, dtype == DType::kU8 ? row_bytes : columns}; }
};

// Takes whole rows of a matrix, the first of them row `first`.
using RowSink = std::function<void(int64_t first, std::span<const float> rows)>;

class WeightSource {
 public:
  // A .gguf file, a .safetensors file, or a folder of safetensors with config.json beside it.
  // The embedding of HF and GGUF sources is multiplied by sqrt(emb_dim) rounded to `activation`,
  // the run's activation dtype. Throws kIo.
  static std::unique_ptr<WeightSource> open(const std::string& path,
                                            DType activation = DType::kF32);
  virtual ~WeightSource() = default;

  // From HF's config.json or GGUF's metadata; none for MaxText-named files.
  virtual const std::optional<Gemma3Config>& config() const = 0;
  // What config() says beyond shapes (check_source_numbers).
  virtual std::vector<SourceNumber> numbers() const { return {}; }
  // "Hugging Face", "GGUF" or "MaxText".
  virtual std::string_view kind() const = 0;

  // One weight in MaxText's shape and convention (norm scales are whole factors, kernels are
  // [in, out]), rounded to `want` (a float type) once from float32. Holds little more than that one
  // tensor, which is read-only.
  // Throws kIo naming the source's tensor, the shape expected and the one found.
  virtual Tensor read(std::string_view name, const Shape& shape, DType want) const = 0;

  // How the weight of `shape` can be kept, if it is a matrix; its first rows, where the file has
  // more of the vocabulary. `decoded`: blocks become floats of this dtype. Other floats stay what
  // they are.
  virtual std::optional<StoredMatrix> stored(std::string_view name, const Shape& shape,
                                             std::optional<DType> decoded) const = 0;
  // Its bytes, of what stored() answered. Throws kIo.
  virtual Tensor read_stored(std::string_view name, const Shape& shape,
                             const StoredMatrix& matrix) const = 0;
  // All rows of what stored() answered, as float32, piece by piece and from several threads at
  // once; blocks are decoded. Throws kIo, and what the sink throws.
  virtual void read_rows(std::string_view name, const Shape& shape, const StoredMatrix& matrix,
                         const RowSink& sink) const = 0;

  // Throws one kIo that lists what is missing, twice there, unexpected, or of a wrong shape, and
  // an lm_head that differs from the embedding. Up to 64 embedding rows beyond the vocabulary are
  // accepted and not read; vision tensors are ignored.
  virtual void check(const std::vector<NamedShape>& expected) const = 0;
};

}  // namespace mt::models::gemma3
