#include "http/openai_json.h"

#include <algorithm>
#include <cmath>

#include "data/utf8.h"

namespace mt::http {
namespace {

constexpr double kLeast = -9999;  // JSON has no infinity; OpenAI's own stand-in

double number(float log_prob) { return std::isfinite(log_prob) ? double{log_prob} : kLeast; }

// A token as JSON shows it; bytes that are no text as OpenAI's completions do.
std::string shown(int32_t id, const data::Tokenizer& tokenizer) {
  const std::string bytes = token_bytes(id, tokenizer);
  if (!data::first_invalid_utf8(bytes)) return bytes;
  std::string out = "bytes:";
  for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

Json::Object chat_token(int32_t id, float log_prob, const data::Tokenizer& tokenizer) {
  Json::Array bytes;
  for (const char c : token_bytes(id, tokenizer)) {
    bytes.emplace_back(int64_t{static_cast<unsigned char>(c)});
  }
  return {{"token", shown(id, tokenizer)}, {"logprob", number(log_prob)}, {"bytes", bytes}};
}

}  // namespace

std::string token_bytes(int32_t id, const data::Tokenizer& tokenizer) {
  if (id >= tokenizer.vocab_size()) return fmt::format("<row {}>", id);
  const std::string& piece = tokenizer.piece(id);
  if (tokenizer.is_byte(id)) {
    return {static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16))};  // <0xNN>
  }
  std::string out = piece;
  constexpr std::string_view kSpace = "\u2581";
  for (size_t at = 0; (at = out.find(kSpace, at)) != std::string::npos; ++at) {
    out.replace(at, kSpace.size(), " ");
  }
  return out;
}

Json usage_json(const Usage& usage) {
  return Json::Object{{"prompt_tokens", usage.prompt_tokens},
                      {"completion_tokens", usage.completion_tokens},
                      {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

Json::Object envelope(const std::string& id, const char* object, int64_t created,
                      const std::string& model) {
  return {{"id", id}, {"object", object}, {"created", created}, {"model", model}};
}

Json chat_log_probs(std::span<const serve::ShownToken> tokens, const data::Tokenizer& tokenizer) {
  Json::Array content;
  for (const serve::ShownToken& t : tokens) {
    Json::Object entry = chat_token(t.token.id, t.token.log_prob, tokenizer);
    Json::Array top;
    for (const auto& [id, p] : t.token.top) top.emplace_back(chat_token(id, p, tokenizer));
    entry.emplace_back("top_logprobs", std::move(top));
    content.emplace_back(std::move(entry));
  }
  return Json::Object{{"content", std::move(content)}, {"refusal", Json()}};
}

void CompletionLogProbs::add(int32_t id, float log_prob, std::span<const serve::Alternative> top,
                             int64_t offset) {
  tokens_.emplace_back(shown(id, tokenizer_));
  const bool known = !std::isnan(log_prob);
  log_probs_.push_back(known ? Json(number(log_prob)) : Json());
  Json::Object likely;
  const auto put = [&](int32_t of, float p) {
    const std::string text = shown(of, tokenizer_);
    const auto same = [&](const auto& entry) { return entry.first == text; };
    if (std::none_of(likely.begin(), likely.end(), same)) likely.emplace_back(text, number(p));
  };
  for (const auto& [other, p] : top) put(other, p);
  if (known) put(id, log_prob);
  top_.push_back(known ? Json(std::move(likely)) : Json());
  offsets_.emplace_back(offset);
}

Json CompletionLogProbs::take(bool with_top) {
  Json out = Json::Object{{"tokens", std::move(tokens_)},
                          {"token_logprobs", std::move(log_probs_)},
                          {"top_logprobs", with_top ? Json(std::move(top_)) : Json()},
                          {"text_offset", std::move(offsets_)}};
  tokens_.clear(), log_probs_.clear(), top_.clear(), offsets_.clear();
  return out;
}

int64_t characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // not the rest of one
  });
}

const char* finish_name(serve::Finish finish) {
  switch (finish) {
    case serve::Finish::kStop: return "stop";
    case serve::Finish::kLength: return "length";
    case serve::Finish::kCancelled: return "cancelled";
    case serve::Finish::kExpired: return "expired";
    case serve::Finish::kFault: return "fault";
    case serve::Finish::kStopping: return "stopping";
  }
  return "";
}

}  // namespace mt::http
