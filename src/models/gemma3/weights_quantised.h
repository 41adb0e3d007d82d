// `quantization`: matrices of floats turned into GGUF's blocks as they are read.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "models/gemma3/weights.h"

namespace mt::models::gemma3 {

enum class Quantization {
  kInt8,  // Q8_0
  kInt4,  // Q4_0, the token table Q8_0
};
// "int8", "int4"; nullopt for anything else.
std::optional<Quantization> parse_quantization(std::string_view text);
std::string_view name(Quantization quantization);

struct QuantiseOptions {
  Quantization to = Quantization::kInt8;
  std::string path;     // of the source, for messages
  bool decode = false;  // blocks of the source are decoded; else they are refused
};

// Every matrix of the source in blocks, whatever stored() is asked to decode; one whose rows don't
// divide into blocks becomes float32. The table is as GGUF has it, not multiplied. Reads strip by
// strip on all cores, holding one matrix of the result; says every few seconds how far it is.
// Throws kConfig if the source is quantised already; reading throws kIo naming the matrix that has
// a value that no block can hold.
std::unique_ptr<WeightSource> quantised(std::unique_ptr<WeightSource> source,
                                        const Gemma3Config& config, QuantiseOptions options);

}  // namespace mt::models::gemma3
