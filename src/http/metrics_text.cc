#include "http/metrics_text.h"

#include <fmt/core.h>

namespace mt::http {
namespace {

class Page {
 public:
  explicit Page(std::string id) : id_(std::move(id)) {}

  void gauge(const char* name, const char* help, double value) {
    head(name, help, "gauge");
    text += fmt::format("{}{{id=\"{}\"}} {}\n", name, id_, value);
  }
  void counter(const char* name, const char* help, int64_t value) {
    head(name, help, "counter");
    text += fmt::format("{}{{id=\"{}\"}} {}\n", name, id_, value);
  }
  void histogram(const char* name, const char* help, const serve::Histogram& h) {
    head(name, help, "histogram");
    int64_t sum = 0;
    for (size_t i = 0; i < h.buckets.size(); ++i) {
      sum += h.buckets[i];
      const std::string bound = i < h.bounds.size() ? fmt::format("{}", h.bounds[i]) : "+Inf";
      text += fmt::format("{}_bucket{{id=\"{}\",le=\"{}\"}} {}\n", name, id_, bound, sum);
    }
    text += fmt::format("{0}_sum{{id=\"{1}\"}} {2}\n{0}_count{{id=\"{1}\"}} {3}\n", name, id_,
                        h.sum, h.count);
  }

  std::string text;

 private:
  void head(const char* name, const char* help, const char* type) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
  }
  std::string id_;
};

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

void put_now(Page& page, const serve::ServingCounts& c, const ServerFigures& s) {
  const auto number = [](int64_t x) { return static_cast<double>(x); };
  page.gauge("jetstream_prefill_backlog_size", "Requests that wait for a slot.", number(c.waiting));
  page.gauge("num_requests_waiting", "Requests that wait for a slot.", number(c.waiting));
  page.gauge("jetstream_slots_used_percentage", "Share of slots in use, 0 to 1.",
             share(c.filling + c.generating, c.slots));
  page.gauge("kv_cache_utilization_perc", "Share of the slots' tokens in use, 0 to 1.",
             share(c.tokens_held, c.tokens_room));
  page.gauge("maxtext_slots", "Slots.", number(c.slots));
  page.gauge("maxtext_requests_filling", "Requests whose prompt is run.", number(c.filling));
  page.gauge("maxtext_requests_active", "Requests that generate.", number(c.generating));
  page.gauge("maxtext_connections", "Open connections.", number(s.connections));
  page.gauge("jetstream_model_load_time", "Seconds to load the weights.", s.load_seconds);
  page.gauge("jetstream_server_startup_latency",
             "Seconds from the start to the first request taken.", s.startup_seconds);
}

void put_counters(Page& page, const serve::ServingCounts& c) {
  page.counter("jetstream_request_success_count", "Requests that ended well.", c.finished);
  page.counter("maxtext_requests_accepted", "Requests taken, by texts to generate.", c.accepted);
  page.counter("maxtext_requests_refused", "Requests refused: no room, or stopping.", c.refused);
  page.counter("maxtext_requests_cancelled", "Requests whose client went away.", c.cancelled);
  page.counter("maxtext_requests_expired", "Requests that took longer than allowed.", c.expired);
  page.counter("maxtext_requests_failed", "Requests that the engine failed.", c.faulty);
  page.counter("maxtext_requests_stopped", "Requests that the server's stop ended.", c.stopped);
  page.counter("maxtext_prompt_tokens", "Tokens of prompts.", c.prompt_tokens);
  page.counter("maxtext_reused_tokens", "Tokens of prompts that a slot held already.",
               c.reused_tokens);
  page.counter("maxtext_output_tokens", "Tokens generated.", c.output_tokens);
  page.counter("maxtext_steps", "Generate steps of all slots.", c.steps);
}

}  // namespace

std::string metrics_text(const serve::ServingCounts& c, const ServerFigures& server) {
  Page page(server.id);
  put_now(page, c, server);
  put_counters(page, c);
  page.histogram("jetstream_request_input_length", "Tokens of a prompt.", c.prompt_length);
  page.histogram("jetstream_request_output_length", "Tokens of an output.", c.output_length);
  page.histogram("jetstream_queue_duration", "Seconds in the queue.", c.queue_seconds);
  page.histogram("jetstream_wait_time_per_request", "Seconds in the queue.", c.queue_seconds);
  page.histogram("jetstream_time_to_first_token", "Seconds to the first token.",
                 c.first_token_seconds);
  page.histogram("jetstream_time_per_output_token", "Seconds a token after the first.",
                 c.output_token_seconds);
  page.histogram("jetstream_time_per_prefill_token", "Seconds a token of the prompt.",
                 c.prompt_token_seconds);
  page.histogram("jetstream_time_per_request", "Seconds of a whole request.", c.request_seconds);
  return page.text;
}

}  // namespace mt::http
