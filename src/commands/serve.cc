#include "commands/serve.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <limits>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/signals.h"
#include "config/config.h"
#include "data/open_tokenizer.h"
#include "http/api.h"
#include "http/api_fault.h"
#include "http/server.h"
#include "models/gemma3/from_run.h"
#include "serve/engine.h"
#include "serve/orchestrator.h"
#include "serve/quantised_params.h"
#include "train/log_lines.h"

namespace mt::commands {
namespace {

using config::Config;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr double kGb = 1073741824.0;

constexpr const char* kUse =
    "Keeps the model of model_name= with the weights of load_parameters_path= in memory and "
    "answers\n"
    "http://HOST:PORT/v1/chat/completions, /v1/completions, /v1/models, /tokenize, /detokenize,\n"
    "/health and /metrics, until SIGTERM or SIGINT. A GGUF file brings its tokenizer; other "
    "weights\n"
    "need tokenizer_path=. max_target_length= counts prompt and output of a request.\n";

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

milliseconds milliseconds_of(const Config& config, const char* key) {
  return milliseconds(static_cast<int64_t>(config.number(key) * 1000));
}

serve::EngineOptions engine_options(const Config& config) {
  serve::EngineOptions o;
  o.slots = config.integer("max_concurrent_decodes");
  o.max_length = config.integer("max_target_length");
  o.chunk = config.integer("prefill_chunk_size");
  o.cache_dtype = config.flag("quantize_kvcache") ? DType::kS8 : *parse_dtype(config.text("dtype"));
  if (o.max_length < 2) {
    throw fail(ErrorKind::kConfig, "max_target_length={}: a prompt and its output need 2 or more",
               o.max_length);
  }
  return o;
}

// Before anything is compiled: the caches of the slots and of a prompt.
void check_caches_fit(const serve::Engine& engine, const models::gemma3::Devices& devices) {
  int64_t most = train::available_memory();
  if (!devices.client->is_cpu()) {
    const auto stats = devices.client->memory_stats(0);
    most = stats && stats->limit ? *stats->limit : std::numeric_limits<int64_t>::max();
  }
  const auto slot = static_cast<double>(engine.cache_bytes_per_slot());
  const double need = slot * static_cast<double>(engine.slots() + 1);
  if (need <= static_cast<double>(most)) return;
  throw fail(
      ErrorKind::kLimit,
      "max_concurrent_decodes={}: a slot of max_target_length={} tokens needs {:.3f} GB, all "
      "of them and a prompt's {:.1f} GB, but {:.1f} GB of memory is available",
      engine.slots(), engine.max_length(), slot / kGb, need / kGb, static_cast<double>(most) / kGb);
}

http::ServerOptions server_options(const Config& config) {
  http::ServerOptions o;
  o.host = config.text("host");
  o.port = static_cast<uint16_t>(config.integer("port"));
  o.max_connections = config.integer("max_connections");
  o.max_body = static_cast<uint64_t>(config.integer("max_request_bytes"));
  o.read_time = o.write_time = milliseconds_of(config, "read_timeout");
  o.tls_cert_file = config.text("tls_cert_file");
  o.tls_key_file = config.text("tls_key_file");
  o.error_body = [](int status, const std::string& message) {
    return http::error_body(status, message);
  };
  return o;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// What the program holds while it serves; members end in the opposite order.
struct Serving {
  data::Tokenizer tokenizer;
  std::unique_ptr<models::gemma3::Devices> devices;
  std::unique_ptr<serve::Engine> engine;
};

Serving open(const Config& config) {
  const serve::EngineOptions options = engine_options(config);
  const int64_t vocab_size = models::gemma3::sizes_from(config).vocab_size;
  serve::check_quantization_keys(config);
  auto reading = std::async(std::launch::async, [&] {
    const std::string path =
        data::tokenizer_path(config.text("tokenizer_path"), config.text("load_parameters_path"));
    auto tokenizer = data::open_tokenizer(path, vocab_size);
    const std::string note = data::padding_note(tokenizer, path, vocab_size);
    if (!note.empty()) log_text(note);
    return tokenizer;
  });
  auto devices = std::make_unique<models::gemma3::Devices>(models::gemma3::open_devices(config));
  auto engine = std::make_unique<serve::Engine>(config, *devices, options);
  check_caches_fit(*engine, *devices);
  engine->open_params();
  return {reading.get(), std::move(devices), std::move(engine)};
}

// Every length of prompt that has a program of its own, chosen from in every way.
void warm_up(serve::Engine& engine) {
  const int64_t longest = std::min(engine.options().chunk, engine.max_length() - 1);
  for (const bool full : {false, true}) {
    for (const float temperature : {0.0F, 1.0F}) {
      serve::Sampling sampling;
      sampling.temperature = temperature;
      if (full) sampling.top_log_probs = 1;
      for (int64_t tokens = 16; tokens < 2 * longest; tokens *= 2) {
        engine.compile(std::min(tokens, longest), sampling);
      }
      if (full) break;  // one program for both
    }
  }
}

// Gemma ends a text with <eos>, and a turn of a conversation with <end_of_turn>.
std::vector<int32_t> ends_of(const data::Tokenizer& tokenizer) {
  std::vector<int32_t> ends;
  for (const int64_t id : {tokenizer.eos_id(), tokenizer.id_of("<end_of_turn>")}) {
    if (id >= 0) ends.push_back(static_cast<int32_t>(id));
  }
  return ends;
}

http::ApiOptions api_options(const Config& config, const Serving& run, int64_t capacity) {
  const std::string& name = config.text("served_model_name");
  return {
      .model = http::served_model(name.empty() ? config.text("model_name") : name, run.tokenizer,
                                  run.engine->max_length(), run.engine->vocab_size(), capacity),
      .api_key = config.text("api_key"),
      .request_time = milliseconds_of(config, "request_timeout"),
      .figures = {.id = host_name()},
      .log = [](const std::string& line) { log_text(line); }};
}

// The address first: a port that is taken shouldn't cost the loading of weights. Until the model is
// there, requests are told so.
class Front {
 public:
  explicit Front(const Config& config)
      : server_(server_options(config), [this](const auto& exchange) { handle(exchange); }) {}
  void open(http::Api* api) { api_ = api; }
  http::Server& server() { return server_; }

 private:
  void handle(const std::shared_ptr<http::Exchange>& exchange) {
    if (http::Api* api = api_) return api->handle(exchange);
    exchange->respond({.status = 503,
                       .body = http::error_body(503, "the model is being loaded"),
                       .headers = {{"Retry-After", "1"}}});
  }
  std::atomic<http::Api*> api_{nullptr};
  http::Server server_;
};

void say_ready(const Config& config, const Serving& run, const http::Server& server) {
  if (config.text("load_parameters_path").empty()) {
    log_text("load_parameters_path is not set: the weights are random, and so is the text.");
  }
  log_line("Slots: {} of {} tokens, {:.1f} MB each; weights and slots {:.2f} GB",
           run.engine->slots(), run.engine->max_length(),
           static_cast<double>(run.engine->cache_bytes_per_slot()) / 1e6,
           static_cast<double>(run.engine->bytes_on_device()) / kGb);
  const std::string& host = config.text("host");
  if (host != "127.0.0.1" && host != "localhost" && host != "::1" &&
      config.text("api_key").empty()) {
    log_warning("host={} and no api_key: whoever reaches this machine may ask", host);
  }
  log_line("Serving at {}://{}:{}", config.text("tls_cert_file").empty() ? "http" : "https",
           host.find(':') == std::string::npos ? host : "[" + host + "]", server.port());
}

void wait_for_signal(const StopSignals& signals) {
  while (!signals.requested()) std::this_thread::sleep_for(milliseconds(50));
}

int run(const Config& config) {
  const auto start = Clock::now();
  StopSignals signals("request");
  Front front(config);
  const Serving run = open(config);
  serve::OrchestratorOptions options;
  options.max_waiting = config.integer("max_waiting_requests");
  options.round_tokens = config.integer("prefill_chunk_size");
  options.ends = ends_of(run.tokenizer);
  const auto loading = Clock::now();
  auto compiling = std::async(std::launch::async, [&] {
    if (config.flag("enable_model_warmup")) warm_up(*run.engine);
  });
  run.engine->load_params();
  const double load_seconds = seconds_since(loading);
  compiling.get();
  release_free_memory();
  serve::Orchestrator orchestrator(*run.engine, run.tokenizer, options);
  http::ApiOptions api = api_options(config, run, orchestrator.capacity());
  api.figures.load_seconds = load_seconds;
  api.figures.startup_seconds = seconds_since(start);
  api.connections = [&] { return front.server().connections(); };
  http::Api routes(std::move(api), orchestrator);
  front.open(&routes);
  signals.begin();
  say_ready(config, run, front.server());
  wait_for_signal(signals);
  routes.stopping();
  orchestrator.stop(milliseconds_of(config, "shutdown_timeout"));
  front.server().stop(milliseconds(2000));  // for the last answers to be sent
  log_line("Stopped by {}.", signals.name());
  return 0;
}

}  // namespace

int serve(const std::vector<std::string>& args) {
  for (const std::string& word : args) {
    if (word != "--help" && word != "-h") continue;
    fmt::print("usage: maxtext serve [CONFIG.yml] key=value ...\n\n{}\n{}", kUse,
               config::help("Serving"));
    return 0;
  }
  return run(Config::load(args, config::process_environment()));
}

}  // namespace mt::commands
