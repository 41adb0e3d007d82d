// The answer to a request for texts, made from the orchestrator's events: one JSON object, or a
// stream of server-sent events that end with [DONE]. Owns itself: it lives as long as its
// listeners.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "http/exchange.h"
#include "http/openai_json.h"

namespace mt::http {

// For the log: how the whole request went.
struct AnswerSummary {
  int status = 200;
  std::string id, finish, fault;
  int64_t texts = 0, prompt_tokens = 0, reused_tokens = 0, output_tokens = 0;
  double queue_seconds = 0, first_token_seconds = 0, total_seconds = 0;  // the longest of its texts
};

class TextAnswer final : public std::enable_shared_from_this<TextAnswer> {
 public:
  using Done = std::function<void(const AnswerSummary&)>;
  // Tokenizer and orchestrator must outlive this. `done` is called once, when all texts have ended.
  TextAnswer(TextRequest request, const ServedModel& model, std::shared_ptr<Exchange> exchange,
             Done done);

  // Submits the texts; what they give goes to the exchange. Throws as Orchestrator::submit does,
  // and then nothing was sent.
  void start(serve::Orchestrator& orchestrator, std::optional<serve::Clock::time_point> deadline);

 private:
  struct Choice {
    std::string text;  // with the prompt, if it is echoed
    std::string made;  // of the output, for offsets
    std::vector<serve::ShownToken> tokens;
    std::unique_ptr<CompletionLogProbs> log_probs;
    int64_t echoed = 0;                  // characters
    bool opened = false, begun = false;  // the echo was made; something was sent
    std::optional<serve::Finish> finish;
  };

  const TextPrompt& prompt_of(size_t index) const {
    return request_.prompts[index / static_cast<size_t>(request_.n)];
  }
  std::vector<serve::Orchestrator::Entry> entries(std::optional<serve::Clock::time_point> deadline);
  void take(size_t index, const serve::Event& event);  // on the text thread
  void echo(size_t index, const serve::Event& event);
  void note_tokens(Choice& choice, const serve::Event& event);
  void end_choice(size_t index, const serve::Summary& summary);
  void end_all();
  bool went_wrong(const serve::Summary& summary);

  Json choice_json(size_t index, bool chunk);
  Json log_probs_json(Choice& choice);
  void send_chunk(size_t index);
  void send_event(const Json& json);
  Json whole_json();
  const char* object(bool chunk) const;

  const TextRequest request_;
  const ServedModel& model_;
  const std::shared_ptr<Exchange> exchange_;
  const Done done_;
  const std::string id_;
  const int64_t created_;
  serve::Orchestrator* orchestrator_ = nullptr;

  std::mutex mutex_;  // of what follows: events may come before submit() returns
  std::vector<Choice> choices_;
  size_t left_ = 0;  // choices that have not ended
  Usage usage_;
  AnswerSummary summary_;
};

}  // namespace mt::http
