// The bodies of /v1/completions and /v1/chat/completions (OpenAI's API reference; top_k, min_p,
// repetition_penalty, ignore_eos as other servers have them) as prompts and settings. A field that
// has no meaning here is refused by its name.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/tokenizer.h"
#include "serve/sampling.h"

namespace mt::http {

// What the served model is.
struct ServedModel {
  std::string name;
  const data::Tokenizer* tokenizer = nullptr;
  int64_t max_length = 0;  // tokens of prompt and output
  int64_t vocab_size = 0;
  int64_t longest_piece = 0;  // bytes
  int64_t most_texts = 1;     // that one request may ask for
};
// With what the tokenizer tells.
ServedModel served_model(std::string name, const data::Tokenizer& tokenizer, int64_t max_length,
                         int64_t vocab_size, int64_t most_texts);

struct TextPrompt {
  std::vector<int32_t> tokens;
  std::string text;  // as echo shows it
};

struct TextRequest {
  bool chat = false;
  std::vector<TextPrompt> prompts;
  int64_t n = 1;
  int64_t max_tokens = 0;
  serve::Sampling sampling;  // of the first text; the seed is set
  std::vector<std::string> stops;
  bool ignore_eos = false;
  bool stream = false, include_usage = false;
  bool echo = false;
  std::optional<int32_t> log_probs;  // told, with so many alternatives
};

// Throw ApiFault.
TextRequest read_completion(const Json& body, const ServedModel& model);
TextRequest read_chat(const Json& body, const ServedModel& model);

// The prompt of `messages` in Gemma's template: a system text stands in the first turn of the user,
// user and assistant take turns.
std::vector<int32_t> chat_prompt(const Json& messages, const ServedModel& model);
// Token ids of a text, with <bos>. Throws ApiFault for one that can't fit.
std::vector<int32_t> text_prompt(const std::string& text, const std::string& field,
                                 const ServedModel& model);
std::vector<int32_t> token_ids(const Json& ids, const std::string& field, int64_t vocab_size);

// The text of ids, those included that no piece belongs to.
std::string decode_any(std::span<const int32_t> ids, const ServedModel& model);

// The seed of the i-th text of a request: the first one's is the request's.
uint64_t seed_of(uint64_t seed, int64_t index);

}  // namespace mt::http
