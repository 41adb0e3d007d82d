// Generated texts as OpenAI's JSON objects.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "http/openai_request.h"
#include "serve/orchestrator.h"

namespace mt::http {

// The bytes that a token stands for, as text: a byte token alone is no valid UTF-8. Control tokens
// and rows without a piece have a name.
std::string token_bytes(int32_t id, const data::Tokenizer& tokenizer);

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0;
};
Json usage_json(const Usage& usage);

// What a response, or a chunk of one, begins with.
Json::Object envelope(const std::string& id, const char* object, int64_t created,
                      const std::string& model);

// `logprobs` of a chat choice.
Json chat_log_probs(std::span<const serve::ShownToken> tokens, const data::Tokenizer& tokenizer);

// `logprobs` of a completion's choice, token by token.
class CompletionLogProbs {
 public:
  explicit CompletionLogProbs(const data::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  // A token whose text begins at `offset`, in characters. NaN: nothing is known of it (the first
  // of a prompt).
  void add(int32_t id, float log_prob, std::span<const serve::Alternative> top, int64_t offset);
  bool empty() const { return tokens_.empty(); }
  Json take(bool with_top);

 private:
  const data::Tokenizer& tokenizer_;
  Json::Array tokens_, log_probs_, top_, offsets_;
};

int64_t characters(std::string_view text);      // code points
const char* finish_name(serve::Finish finish);  // "stop", "length", ...

}  // namespace mt::http
