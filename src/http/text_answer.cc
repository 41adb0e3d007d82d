#include "http/text_answer.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "base/error.h"
#include "http/api_fault.h"

namespace mt::http {
namespace {

std::string new_id(const char* prefix) {
  std::random_device bits;
  return fmt::format("{}-{:08x}{:08x}{:08x}", prefix, bits(), bits(), bits());
}

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

TextAnswer::TextAnswer(TextRequest request, const ServedModel& model,
                       std::shared_ptr<Exchange> exchange, Done done)
    : request_(std::move(request)),
      model_(model),
      exchange_(std::move(exchange)),
      done_(std::move(done)),
      id_(new_id(request_.chat ? "chatcmpl" : "cmpl")),
      created_(unix_seconds()) {
  choices_.resize(request_.prompts.size() * static_cast<size_t>(request_.n));
  left_ = choices_.size();
  summary_.id = id_;
  summary_.texts = std::ssize(choices_);
  for (Choice& choice : choices_) {
    if (request_.log_probs && !request_.chat) {
      choice.log_probs = std::make_unique<CompletionLogProbs>(*model.tokenizer);
    }
  }
}

std::vector<serve::Orchestrator::Entry> TextAnswer::entries(
    std::optional<serve::Clock::time_point> deadline) {
  std::vector<serve::Orchestrator::Entry> out;
  for (size_t i = 0; i < choices_.size(); ++i) {
    serve::Request r{.tokens = prompt_of(i).tokens,
                     .sampling = request_.sampling,
                     .max_tokens = request_.max_tokens,
                     .stops = request_.stops,
                     .ignore_ends = request_.ignore_eos,
                     .deadline = deadline};
    r.sampling.seed = seed_of(request_.sampling.seed, static_cast<int64_t>(i) % request_.n);
    if (request_.echo && request_.log_probs) {
      r.prefill = {.log_probs = true, .top_log_probs = *request_.log_probs};
    }
    out.push_back({std::move(r), [self = shared_from_this(), i](const serve::Event& event) {
                     self->take(i, event);
                   }});
  }
  return out;
}

void TextAnswer::start(serve::Orchestrator& orchestrator,
                       std::optional<serve::Clock::time_point> deadline) {
  orchestrator_ = &orchestrator;
  serve::Orchestrator::Tickets tickets;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    tickets = orchestrator.submit(entries(deadline));
    if (request_.stream) {
      exchange_->begin({.type = "text/event-stream", .headers = {{"Cache-Control", "no-store"}}});
    }
  }
  exchange_->on_gone([&orchestrator, tickets = std::move(tickets)] {
    for (const auto& ticket : tickets) orchestrator.cancel(ticket);
  });
}

// --- events -------------------------------------------------------------------------------------

void TextAnswer::take(size_t index, const serve::Event& event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Choice& choice = choices_[index];
  if (request_.echo && !choice.opened) echo(index, event);
  choice.text += event.text;
  note_tokens(choice, event);
  if (event.end) end_choice(index, *event.end);
  if (request_.stream && (!event.end || choice.finish)) send_chunk(index);
  if (event.end && --left_ == 0) end_all();
}

void TextAnswer::echo(size_t index, const serve::Event& event) {
  Choice& choice = choices_[index];
  const TextPrompt& prompt = prompt_of(index);
  choice.opened = true;
  choice.text = prompt.text;
  choice.echoed = characters(prompt.text);
  if (choice.log_probs == nullptr) return;
  data::StreamDecoder decoder(*model_.tokenizer);
  int64_t offset = 0;
  for (size_t i = 0; i < event.prompt_log_probs.size(); ++i) {
    const int32_t id = prompt.tokens[i];
    const auto top = i < event.prompt_top.size() ? std::span(event.prompt_top[i])
                                                 : std::span<const serve::Alternative>();
    choice.log_probs->add(id, event.prompt_log_probs[i], top, offset);
    if (id < model_.tokenizer->vocab_size()) offset += characters(decoder.push(id));
  }
}

void TextAnswer::note_tokens(Choice& choice, const serve::Event& event) {
  if (!request_.log_probs) return;
  choice.made += event.text;
  for (const serve::ShownToken& t : event.tokens) {
    if (request_.chat) {
      choice.tokens.push_back(t);
      continue;
    }
    const auto before = std::string_view(choice.made).substr(0, t.offset);
    choice.log_probs->add(t.token.id, t.token.log_prob, t.token.top,
                          choice.echoed + characters(before));
  }
}

// True if the text ended otherwise than it should; the whole request then does.
bool TextAnswer::went_wrong(const serve::Summary& s) {
  using serve::Finish;
  int status = 0;
  std::string message;
  switch (s.finish) {
    case Finish::kStop:
    case Finish::kLength: return false;
    case Finish::kCancelled: status = 499, message = "the client went away"; break;
    case Finish::kExpired: status = 504, message = "the request took longer than allowed"; break;
    case Finish::kFault: status = 500, message = s.reason; break;
    case Finish::kStopping: status = 503, message = "the server is stopping"; break;
  }
  if (summary_.status == 200) {
    summary_.status = status;
    summary_.fault = message;
  }
  return true;
}

void TextAnswer::end_choice(size_t index, const serve::Summary& s) {
  if (!went_wrong(s)) choices_[index].finish = s.finish;
  if (static_cast<int64_t>(index) % request_.n == 0) {
    usage_.prompt_tokens += s.prompt_tokens;  // n texts share a prompt
  }
  usage_.completion_tokens += s.output_tokens;
  summary_.finish = finish_name(s.finish);
  summary_.reused_tokens += s.reused_tokens;
  const auto longest = [](double& at, double x) { at = std::max(at, x); };
  longest(summary_.queue_seconds, s.queue_seconds);
  longest(summary_.first_token_seconds, s.first_token_seconds);
  longest(summary_.total_seconds, s.total_seconds);
}

void TextAnswer::end_all() {
  summary_.prompt_tokens = usage_.prompt_tokens;
  summary_.output_tokens = usage_.completion_tokens;
  const bool well = summary_.status == 200;
  if (!request_.stream) {
    exchange_->respond(
        well ? Response{200, whole_json().dump()}
             : Response{summary_.status, error_body(summary_.status, summary_.fault)});
  } else {
    if (!well) exchange_->write("data: " + error_body(summary_.status, summary_.fault) + "\n\n");
    if (well && request_.include_usage) {
      Json::Object chunk = envelope(id_, object(true), created_, model_.name);
      chunk.emplace_back("choices", Json::Array{});
      chunk.emplace_back("usage", usage_json(usage_));
      send_event(chunk);
    }
    exchange_->write("data: [DONE]\n\n");
    exchange_->end();
  }
  if (done_) done_(summary_);
}

// --- JSON ---------------------------------------------------------------------------------------

const char* TextAnswer::object(bool chunk) const {
  if (!request_.chat) return "text_completion";
  return chunk ? "chat.completion.chunk" : "chat.completion";
}

Json TextAnswer::log_probs_json(Choice& choice) {
  if (!request_.log_probs) return {};
  if (request_.chat) {
    Json out = chat_log_probs(choice.tokens, *model_.tokenizer);
    choice.tokens.clear();
    return out;
  }
  return choice.log_probs->take(*request_.log_probs > 0);
}

Json TextAnswer::choice_json(size_t index, bool chunk) {
  Choice& choice = choices_[index];
  Json::Object out{{"index", static_cast<int64_t>(index)}};
  if (!request_.chat) {
    out.emplace_back("text", std::move(choice.text));
  } else if (!chunk) {
    out.emplace_back("message", Json::Object{{"role", "assistant"},
                                             {"content", std::move(choice.text)},
                                             {"refusal", Json()}});
  } else {
    Json::Object delta;
    if (!choice.begun) delta.emplace_back("role", "assistant");
    if (!choice.begun || !choice.text.empty()) {
      delta.emplace_back("content", std::move(choice.text));
    }
    out.emplace_back("delta", std::move(delta));
  }
  choice.text.clear();
  out.emplace_back("logprobs", log_probs_json(choice));
  out.emplace_back("finish_reason", choice.finish ? Json(finish_name(*choice.finish)) : Json());
  choice.begun = true;
  return out;
}

void TextAnswer::send_chunk(size_t index) {
  Json::Object chunk = envelope(id_, object(true), created_, model_.name);
  chunk.emplace_back("choices", Json::Array{choice_json(index, true)});
  if (request_.include_usage) chunk.emplace_back("usage", Json());
  send_event(chunk);
}

void TextAnswer::send_event(const Json& json) { exchange_->write("data: " + json.dump() + "\n\n"); }

Json TextAnswer::whole_json() {
  Json::Object out = envelope(id_, object(false), created_, model_.name);
  Json::Array choices;
  for (size_t i = 0; i < choices_.size(); ++i) choices.push_back(choice_json(i, false));
  out.emplace_back("choices", std::move(choices));
  out.emplace_back("usage", usage_json(usage_));
  return out;
}

}  // namespace mt::http
