// The tokenizer that a run's paths name.
#pragma once

#include <string>

#include "checkpoint/gguf_write.h"
#include "data/tokenizer.h"

namespace mt::data {

// tokenizer_path, or without one the weights if they are a GGUF file, which holds its vocabulary.
// Throws what is wrong with the weights' path, and else kConfig if neither will do.
std::string tokenizer_path(const std::string& tokenizer, const std::string& weights);

// A SentencePiece file, or the vocabulary of a GGUF file. Throws kIo for what can't be read, and
// kConfig if it has more pieces than the model has rows (image placeholders apart), or more than
// padding fewer, or lacks the pieces that `needs` asks for.
Tokenizer open_tokenizer(const std::string& path, int64_t vocab_size,
                         const EncodeOptions& needs = {});

// A line for the log if the model has rows that no piece belongs to; else "".
std::string padding_note(const Tokenizer& tokenizer, const std::string& path, int64_t vocab_size);

// Adds tokenizer.ggml.*, with unused pieces up to `vocab_size`, which other readers expect.
void put_vocabulary(checkpoint::GgufMetadata& metadata, GgufVocabulary vocabulary,
                    int64_t vocab_size);

}  // namespace mt::data
