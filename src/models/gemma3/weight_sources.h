// The implementations behind WeightSource::open.
#pragma once

#include <memory>
#include <optional>

#include "checkpoint/reader.h"
#include "models/gemma3/weights.h"

namespace mt::models::gemma3 {

// The same matrix as floats: of this dtype if products take it, else of float32.
StoredMatrix stored_as(StoredMatrix matrix, DType dtype);

using ReaderPtr = std::unique_ptr<checkpoint::TensorReader>;

// Hugging Face or GGUF: one tensor a weight, kernels [out, in], the table unscaled.
struct ForeignFormat {
  bool gguf = false;  // norm scales are stored whole; else Hugging Face's, stored minus one
  std::optional<Gemma3Config> config;
  std::vector<SourceNumber> numbers;
  DType activation = DType::kF32;
};
std::unique_ptr<WeightSource> make_foreign_source(ReaderPtr reader, ForeignFormat format);

// MaxText's own names (separated by '.' or '/', with or without "params"), scanned or not.
bool has_maxtext_names(const checkpoint::TensorReader& reader);
std::unique_ptr<WeightSource> make_maxtext_source(ReaderPtr reader);

}  // namespace mt::models::gemma3
