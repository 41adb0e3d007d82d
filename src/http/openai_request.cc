#include "http/openai_request.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <random>

#include "data/utf8.h"
#include "http/api_fault.h"
#include "http/fields.h"

namespace mt::http {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
constexpr int64_t kUsualTokens = 16;  // OpenAI's default of max_tokens, of completions
constexpr size_t kMostStops = 4;      // OpenAI's
constexpr int64_t kMostN = 128;       // OpenAI's
constexpr int64_t kMostLogProbs = serve::kMostTopLogProbs;

uint64_t random_seed() {
  std::random_device bits;
  return (uint64_t{bits()} << 32) | bits();
}

void read_model(Fields& fields, const ServedModel& model) {
  const Json& name = fields.required("model");
  if (!name.is_string()) {
    throw bad_field("model", "model: expected a string, found {}", kind_of(name));
  }
  if (name.as_string() == model.name) return;
  throw ApiFault(404, "model",
                 fmt::format("there is no model '{}': this server has '{}'",
                             name.as_string().substr(0, 200), model.name),
                 "model_not_found");
}

void read_bias(Fields& fields, serve::Sampling& s, int64_t vocab_size) {
  const Json* bias = fields.any("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) {
    throw bad_field("logit_bias", "logit_bias: expected an object, found {}", kind_of(*bias));
  }
  for (const auto& [key, value] : bias->as_object()) {
    int64_t id = -1;
    const auto [end, fault] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (fault != std::errc{} || end != key.data() + key.size() || id < 0 || id >= vocab_size) {
      throw bad_field("logit_bias", "logit_bias: '{}' is no token id: expected 0 to {}",
                      key.substr(0, 50), vocab_size - 1);
    }
    if (!value.is_number() || !(value.as_double() >= -100 && value.as_double() <= 100)) {
      throw bad_field("logit_bias", "logit_bias of {}: expected a number, -100 to 100", id);
    }
    s.logit_bias[static_cast<int32_t>(id)] = static_cast<float>(value.as_double());
  }
}

serve::Sampling read_sampling(Fields& fields, int64_t vocab_size) {
  serve::Sampling s;
  const auto number = [&](const char* name, double low, double high, double usual) {
    return static_cast<float>(fields.number(name, low, high).value_or(usual));
  };
  s.temperature = number("temperature", 0, 2, 1);
  s.nucleus_p = number("top_p", 0, 1, 1);
  if (s.nucleus_p == 0) s.temperature = 0;  // the smallest set has one token
  s.top_k =
      static_cast<int32_t>(std::max<int64_t>(0, fields.integer("top_k", -1, kMost).value_or(0)));
  s.min_p = number("min_p", 0, 1, 0);
  s.repetition_penalty = number("repetition_penalty", 0.01, 100, 1);
  s.presence_penalty = number("presence_penalty", -2, 2, 0);
  s.frequency_penalty = number("frequency_penalty", -2, 2, 0);
  const auto seed = fields.integer("seed", std::numeric_limits<int64_t>::min(),
                                   std::numeric_limits<int64_t>::max());
  s.seed = seed ? static_cast<uint64_t>(*seed) : random_seed();
  read_bias(fields, s, vocab_size);
  return s;
}

std::string stop_text(const Json& v, const std::string& field) {
  if (!v.is_string()) {
    throw bad_field("stop", "{}: expected a string, found {}", field, kind_of(v));
  }
  if (v.as_string().empty())
    throw bad_field("stop", "{} is empty: it would stop every text", field);
  return v.as_string();
}

std::vector<std::string> read_stops(Fields& fields) {
  const Json* stop = fields.any("stop");
  if (stop == nullptr) return {};
  if (!stop->is_array()) return {stop_text(*stop, "stop")};
  const Json::Array& all = stop->as_array();
  if (all.size() > kMostStops) {
    throw bad_field("stop", "stop: {} texts, {} at most", all.size(), kMostStops);
  }
  std::vector<std::string> out;
  for (size_t i = 0; i < all.size(); ++i) {
    out.push_back(stop_text(all[i], fmt::format("stop[{}]", i)));
  }
  return out;
}

void read_stream(Fields& fields, TextRequest& r) {
  r.stream = fields.flag("stream").value_or(false);
  const Json* options = fields.any("stream_options");
  if (options == nullptr) return;
  if (!r.stream) throw bad_field("stream_options", "stream_options needs stream: true");
  Fields inner(*options, "stream_options.");
  r.include_usage = inner.flag("include_usage").value_or(false);
  // Padding against guessing of lengths: there is none to leave out.
  if (inner.flag("include_obfuscation").value_or(false)) {
    throw bad_field("stream_options.include_obfuscation",
                    "stream_options.include_obfuscation is not supported");
  }
  inner.done();
}

void read_format(Fields& fields) {
  const Json* format = fields.any("response_format");
  if (format == nullptr) return;
  Fields inner(*format, "response_format.");
  const std::string type = inner.text("type").value_or("");
  if (type == "text") return inner.done();
  throw bad_field("response_format", "response_format.type '{}' is not supported: expected text",
                  type.substr(0, 50));
}

// Of both kinds.
void read_shared(Fields& fields, const ServedModel& model, TextRequest& r) {
  read_model(fields, model);
  r.sampling = read_sampling(fields, model.vocab_size);
  r.stops = read_stops(fields);
  r.n = fields.integer("n", 1, kMostN).value_or(1);
  r.ignore_eos = fields.flag("ignore_eos").value_or(false);
  fields.text("user");  // who asks: changes nothing
  read_stream(fields, r);
  read_format(fields);
}

void check_count(const TextRequest& r, const ServedModel& model) {
  const int64_t texts = std::ssize(r.prompts) * r.n;
  if (texts <= model.most_texts) return;
  throw bad_field(r.n > 1 ? "n" : "prompt", "{} texts in one request: this server has room for {}",
                  texts, model.most_texts);
}

std::vector<TextPrompt> read_prompts(const Json& prompt, const ServedModel& model) {
  const auto of_text = [&](const Json& v, const std::string& field) {
    return TextPrompt{text_prompt(v.as_string(), field, model), v.as_string()};
  };
  const auto of_ids = [&](const Json& v, const std::string& field) {
    TextPrompt out{token_ids(v, field, model.vocab_size), ""};
    if (std::ssize(out.tokens) < model.max_length) out.text = decode_any(out.tokens, model);
    return out;
  };
  if (prompt.is_string()) return {of_text(prompt, "prompt")};
  if (!prompt.is_array()) {
    throw bad_field("prompt", "prompt: expected a string, token ids or an array of these, found {}",
                    kind_of(prompt));
  }
  const Json::Array& all = prompt.as_array();
  if (all.empty())
    throw bad_field("prompt", "prompt is an empty array: expected one prompt or more");
  if (all.front().is_int()) return {of_ids(prompt, "prompt")};
  if (std::ssize(all) > model.most_texts) {
    throw bad_field("prompt", "{} texts in one request: this server has room for {}", all.size(),
                    model.most_texts);
  }
  std::vector<TextPrompt> out;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string field = fmt::format("prompt[{}]", i);
    if (all[i].is_string()) {
      out.push_back(of_text(all[i], field));
    } else if (all[i].is_array()) {
      out.push_back(of_ids(all[i], field));
    } else {
      throw bad_field("prompt", "{}: expected a string or token ids, found {}", field,
                      kind_of(all[i]));
    }
  }
  return out;
}

// Of all prompts, before anything is generated.
void check_lengths(const TextRequest& r, const ServedModel& model) {
  for (const TextPrompt& prompt : r.prompts) {
    const char* field = r.chat ? "messages" : "prompt";
    if (prompt.tokens.empty()) throw bad_field(field, "{}: a prompt without tokens", field);
    if (std::ssize(prompt.tokens) < model.max_length) continue;
    throw ApiFault(400, field,
                   fmt::format("{}: {} tokens, but this server's context length is {}, and one is "
                               "for the output",
                               field, prompt.tokens.size(), model.max_length),
                   "context_length_exceeded");
  }
}

}  // namespace

uint64_t seed_of(uint64_t seed, int64_t index) {
  if (index == 0) return seed;
  uint64_t x = seed + static_cast<uint64_t>(index) * 0x9E3779B97F4A7C15;  // splitmix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

TextRequest read_completion(const Json& body, const ServedModel& model) {
  TextRequest r;
  Fields fields(body);
  read_shared(fields, model, r);
  r.max_tokens = fields.integer("max_tokens", 0, INT64_MAX).value_or(kUsualTokens);
  r.echo = fields.flag("echo").value_or(false);
  if (const auto count = fields.integer("logprobs", 0, kMostLogProbs)) {
    r.log_probs = static_cast<int32_t>(*count);
    r.sampling.top_log_probs = *r.log_probs;
  }
  fields.not_supported("suffix");
  if (const auto best = fields.integer("best_of", 1, kMostN); best && *best != r.n) {
    throw bad_field("best_of", "best_of is not supported (but as n, which is {})", r.n);
  }
  r.prompts = read_prompts(fields.required("prompt"), model);
  fields.done();
  if (r.max_tokens == 0 && !r.echo) {
    throw bad_field("max_tokens", "max_tokens is 0: expected 1 or more, or echo: true");
  }
  check_count(r, model);
  check_lengths(r, model);
  return r;
}

TextRequest read_chat(const Json& body, const ServedModel& model) {
  TextRequest r;
  r.chat = true;
  Fields fields(body);
  read_shared(fields, model, r);
  const auto older = fields.integer("max_tokens", 1, INT64_MAX);
  const auto newer = fields.integer("max_completion_tokens", 1, INT64_MAX);
  if (older && newer && *older != *newer) {
    throw bad_field("max_tokens",
                    "max_tokens is {} and max_completion_tokens {}: expected one of "
                    "them",
                    *older, *newer);
  }
  r.max_tokens = newer.value_or(older.value_or(model.max_length));
  const auto top = fields.integer("top_logprobs", 0, kMostLogProbs);
  if (fields.flag("logprobs").value_or(false)) {
    r.log_probs = static_cast<int32_t>(top.value_or(0));
    r.sampling.top_log_probs = *r.log_probs;
  } else if (top) {
    throw bad_field("top_logprobs", "top_logprobs needs logprobs: true");
  }
  for (const char* name :
       {"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "audio",
        "modalities", "prediction", "reasoning_effort", "service_tier", "store", "metadata",
        "verbosity", "web_search_options"}) {
    fields.not_supported(name);
  }
  r.prompts.push_back({chat_prompt(fields.required("messages"), model), ""});
  fields.done();
  check_count(r, model);
  check_lengths(r, model);
  return r;
}

}  // namespace mt::http
