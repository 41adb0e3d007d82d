// The routes of `maxtext serve`: OpenAI's API, /tokenize, /detokenize, /health, /metrics. Writes
// one log line a request.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "http/exchange.h"
#include "http/metrics_text.h"
#include "http/openai_request.h"
#include "http/text_answer.h"
#include "serve/orchestrator.h"

namespace mt::http {

struct ApiOptions {
  ServedModel model;
  std::string api_key;                        // "": everybody may ask
  std::chrono::milliseconds request_time{0};  // the longest that a request may take; 0: no end
  std::string page;                           // what GET / answers, HTML; "": nothing
  ServerFigures figures;
  std::function<int64_t()> connections;         // for /metrics
  std::function<void(const std::string&)> log;  // a line
};

class Api {
 public:
  // The orchestrator, and the tokenizer of `options.model`, must outlive this.
  Api(ApiOptions options, serve::Orchestrator& orchestrator);

  // A Handler.
  void handle(const std::shared_ptr<Exchange>& exchange);
  // From now on /health says that the server stops.
  void stopping() { stopping_ = true; }

 private:
  using Route = Response (Api::*)(const Request&);
  struct RouteRow {
    const char* method;
    const char* path;
    Route answer;  // null: a text answer
  };
  static const RouteRow kRoutes[];

  const RouteRow& route(const Request& request) const;  // throws ApiFault
  void check_key(const Request& request) const;
  void generate(const std::shared_ptr<Exchange>& exchange, bool chat);
  void refuse(const std::shared_ptr<Exchange>& exchange, Response response,
              const std::string& reason) const;

  Response models(const Request& request);
  Response model(const Request& request);
  Response tokenize(const Request& request);
  Response detokenize(const Request& request);
  Response health(const Request& request);
  Response metrics(const Request& request);
  Response page(const Request& request);
  Json model_json() const;
  void log_text_answer(const Request& request, const AnswerSummary& summary) const;

  const ApiOptions options_;
  serve::Orchestrator& orchestrator_;
  std::atomic<bool> stopping_{false};
};

}  // namespace mt::http
