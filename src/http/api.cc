#include "http/api.h"

#include <algorithm>

#include "base/error.h"
#include "http/api_fault.h"
#include "http/fields.h"

namespace mt::http {
namespace {

constexpr size_t kMostText = 1 << 20;  // bytes that /tokenize takes
constexpr const char* kModels = "/v1/models/";

// In a time that doesn't depend on how much of it is right.
bool same_secret(const std::string& a, const std::string& b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    difference |= static_cast<unsigned>(a[i] ^ b[i]);
  }
  return difference == 0;
}

Json parse_body(const Request& request) {
  try {
    return Json::parse(request.body);
  } catch (const Error& e) {
    throw ApiFault(400, "", e.what());
  }
}

// What a log line shows of bytes that a stranger sent.
std::string quoted(const std::string& text) { return Json(text.substr(0, 200)).dump(); }

int status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kConfig: return 400;
    case ErrorKind::kLimit: return 429;
    case ErrorKind::kCancelled: return 503;
    default: return 500;
  }
}

}  // namespace

const Api::RouteRow Api::kRoutes[] = {
    {"GET", "/", &Api::page},
    {"GET", "/health", &Api::health},
    {"GET", "/metrics", &Api::metrics},
    {"GET", "/v1/models", &Api::models},
    {"POST", "/v1/completions", nullptr},
    {"POST", "/v1/chat/completions", nullptr},
    {"POST", "/tokenize", &Api::tokenize},
    {"POST", "/detokenize", &Api::detokenize},
};

Api::Api(ApiOptions options, serve::Orchestrator& orchestrator)
    : options_(std::move(options)), orchestrator_(orchestrator) {}

const Api::RouteRow& Api::route(const Request& request) const {
  static constexpr RouteRow kModel{"GET", kModels, &Api::model};
  const RouteRow* found = nullptr;
  if (request.path.starts_with(kModels)) found = &kModel;
  for (const RouteRow& row : kRoutes) {
    if (request.path == row.path) found = &row;
  }
  if (found == nullptr || (found->answer == &Api::page && options_.page.empty())) {
    throw ApiFault(404, "", fmt::format("there is nothing at {}", request.path.substr(0, 200)));
  }
  if (request.method == found->method || (request.method == "HEAD" && found->method[0] == 'G')) {
    return *found;
  }
  throw ApiFault(
      405, "",
      fmt::format("{} takes {}, not {}", found->path, found->method, request.method.substr(0, 20)),
      found->method);
}

void Api::check_key(const Request& request) const {
  if (options_.api_key.empty() || request.path == "/health" || request.path == "/") return;
  const std::string given = request.header("Authorization");
  if (same_secret(given, "Bearer " + options_.api_key)) return;
  throw ApiFault(
      401, "",
      given.empty() ? "an API key is needed: Authorization: Bearer KEY" : "the API key is wrong",
      "invalid_api_key");
}

void Api::refuse(const std::shared_ptr<Exchange>& exchange, Response response,
                 const std::string& reason) const {
  const Request& r = exchange->request();
  options_.log(fmt::format("request client={} method={} path={} status={} error={}", r.client,
                           quoted(r.method), quoted(r.path), response.status, quoted(reason)));
  exchange->respond(std::move(response));
}

void Api::handle(const std::shared_ptr<Exchange>& exchange) {
  const Request& request = exchange->request();
  try {
    const RouteRow& found = route(request);
    check_key(request);
    if (found.answer == nullptr) {
      return generate(exchange, std::string_view(found.path) == "/v1/chat/completions");
    }
    Response response = (this->*found.answer)(request);
    options_.log(fmt::format("request client={} method={} path={} status={}", request.client,
                             quoted(request.method), quoted(request.path), response.status));
    exchange->respond(std::move(response));
  } catch (const ApiFault& e) {
    Response response{e.status(), error_body(e.status(), e.what(), e.param(), e.code())};
    if (e.status() == 401) response.headers = {{"WWW-Authenticate", "Bearer"}};
    if (e.status() == 405) {
      response.body = error_body(405, e.what());
      response.headers = {{"Allow", e.code()}};
    }
    refuse(exchange, std::move(response), e.what());
  } catch (const Error& e) {
    const int status = status_of(e.kind());
    Response response{status, error_body(status, e.what())};
    if (status == 429 || status == 503) response.headers = {{"Retry-After", "1"}};
    refuse(exchange, std::move(response), e.what());
  }
}

void Api::generate(const std::shared_ptr<Exchange>& exchange, bool chat) {
  const Json body = parse_body(exchange->request());
  TextRequest request =
      chat ? read_chat(body, options_.model) : read_completion(body, options_.model);
  const auto done = [this, exchange](const AnswerSummary& summary) {
    log_text_answer(exchange->request(), summary);
  };
  std::optional<serve::Clock::time_point> deadline;
  if (options_.request_time.count() > 0) deadline = serve::Clock::now() + options_.request_time;
  std::make_shared<TextAnswer>(std::move(request), options_.model, exchange, done)
      ->start(orchestrator_, deadline);
}

void Api::log_text_answer(const Request& request, const AnswerSummary& s) const {
  options_.log(fmt::format(
      "request client={} method=POST path={} status={} id={} texts={} prompt_tokens={} "
      "reused_tokens={} output_tokens={} queue_s={:.4f} first_token_s={:.4f} total_s={:.4f} "
      "finish={}{}",
      request.client, quoted(request.path), s.status, s.id, s.texts, s.prompt_tokens,
      s.reused_tokens, s.output_tokens, s.queue_seconds, s.first_token_seconds, s.total_seconds,
      s.finish, s.fault.empty() ? "" : " error=" + quoted(s.fault)));
}

// --- small answers ------------------------------------------------------------------------------

Json Api::model_json() const {
  return Json::Object{{"id", options_.model.name},
                      {"object", "model"},
                      {"created", 0},
                      {"owned_by", "maxtext.cpp"},
                      {"max_model_len", options_.model.max_length}};
}

Response Api::models(const Request&) {
  return {200, Json(Json::Object{{"object", "list"}, {"data", Json::Array{model_json()}}}).dump()};
}

Response Api::model(const Request& request) {
  const std::string name = request.path.substr(std::string_view(kModels).size());
  if (name == options_.model.name) return {200, model_json().dump()};
  throw ApiFault(404, "model", fmt::format("there is no model '{}'", name.substr(0, 200)),
                 "model_not_found");
}

Response Api::tokenize(const Request& request) {
  const Json body = parse_body(request);
  Fields fields(body);
  fields.text("model");
  const auto special = fields.flag("add_special_tokens");
  const Json* messages = fields.any("messages");
  const auto prompt = fields.text("prompt");
  fields.done();
  if ((messages == nullptr) == !prompt) {
    throw bad_field("prompt", "expected prompt or messages, one of them");
  }
  std::vector<int32_t> ids;
  if (messages != nullptr) {
    if (special) throw bad_field("add_special_tokens", "add_special_tokens is of prompt only");
    ids = chat_prompt(*messages, options_.model);
  } else {
    if (prompt->size() > kMostText) {
      throw bad_field("prompt", "prompt: {} bytes, {} at most", prompt->size(), kMostText);
    }
    const data::Tokenizer& t = *options_.model.tokenizer;
    ids = t.encode(*prompt, {.add_bos = special.value_or(true) && t.bos_id() >= 0});
  }
  Json::Array tokens;
  for (const int32_t id : ids) tokens.emplace_back(int64_t{id});
  const int64_t count = std::ssize(tokens);
  return {200, Json(Json::Object{{"tokens", std::move(tokens)},
                                 {"count", count},
                                 {"max_model_len", options_.model.max_length}})
                   .dump()};
}

Response Api::detokenize(const Request& request) {
  const Json body = parse_body(request);
  Fields fields(body);
  fields.text("model");
  const Json& tokens = fields.required("tokens");
  fields.done();
  if (!tokens.is_array()) {
    throw bad_field("tokens", "tokens: expected token ids, found {}", kind_of(tokens));
  }
  const auto ids = token_ids(tokens, "tokens", options_.model.vocab_size);
  return {200, Json(Json::Object{{"prompt", decode_any(ids, options_.model)}}).dump()};
}

Response Api::health(const Request&) {
  const bool stops = stopping_;
  return {stops ? 503 : 200, Json(Json::Object{{"status", stops ? "stopping" : "ok"}}).dump()};
}

Response Api::metrics(const Request&) {
  ServerFigures figures = options_.figures;
  if (options_.connections) figures.connections = options_.connections();
  return {200, metrics_text(orchestrator_.counts(), figures),
          "text/plain; version=0.0.4; charset=utf-8"};
}

Response Api::page(const Request&) { return {200, options_.page, "text/html; charset=utf-8"}; }

}  // namespace mt::http
