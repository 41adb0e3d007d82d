#include "commands/decode.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "config/config.h"
#include "data/open_tokenizer.h"
#include "models/gemma3/from_run.h"
#include "serve/engine.h"
#include "train/log_lines.h"

namespace mt::commands {
namespace {

using config::Config;

serve::Sampling sampling_from(const Config& config) {
  const std::string& strategy = config.text("decode_sampling_strategy");
  serve::Sampling s;
  if (strategy == "greedy") return s;
  s.temperature = static_cast<float>(config.number("decode_sampling_temperature"));
  s.seed = static_cast<uint64_t>(config.integer("decode_sampling_seed"));
  const auto needs = [&](const char* key, bool given) {
    if (!given) {
      throw fail(ErrorKind::kConfig, "decode_sampling_strategy={} needs {} above 0", strategy, key);
    }
  };
  if (strategy == "topk" || strategy == "composite") {
    s.top_k = static_cast<int32_t>(config.integer("decode_sampling_top_k"));
    needs("decode_sampling_top_k", s.top_k > 0);
  }
  if (strategy == "nucleus" || strategy == "composite") {
    s.nucleus_p = static_cast<float>(config.number("decode_sampling_nucleus_p"));
    needs("decode_sampling_nucleus_p", s.nucleus_p > 0);
  }
  return s;
}

serve::EngineOptions engine_options(const Config& config) {
  serve::EngineOptions o;
  o.max_length = config.integer("max_target_length");
  o.chunk = config.integer("prefill_chunk_size");
  o.cache_dtype = *parse_dtype(config.text("dtype"));
  const int64_t prefill = config.integer("max_prefill_predict_length");
  if (prefill >= o.max_length) {
    throw fail(ErrorKind::kConfig,
               "max_prefill_predict_length={} leaves no room to generate in max_target_length={}",
               prefill, o.max_length);
  }
  return o;
}

std::vector<int32_t> prompt_tokens(const Config& config, const data::Tokenizer& tokenizer) {
  const auto ids = tokenizer.encode(config.text("prompt"), {.add_bos = tokenizer.bos_id() >= 0});
  const int64_t most = config.integer("max_prefill_predict_length");
  if (static_cast<int64_t>(ids.size()) > most) {
    throw fail(ErrorKind::kConfig,
               "the prompt has {} tokens, max_prefill_predict_length={}: make it shorter, or the "
               "buffer longer",
               ids.size(), most);
  }
  return ids;
}

// Gemma ends a text with <eos>, and a turn of a conversation with <end_of_turn>.
bool is_end(const data::Tokenizer& tokenizer, int32_t id) {
  return id == tokenizer.eos_id() || id == tokenizer.id_of("<end_of_turn>");
}

void report_memory(const models::gemma3::Devices& devices, int64_t bytes) {
  std::vector<mt::train::DeviceMemory> lines;
  for (size_t d = 0; d < static_cast<size_t>(devices.partitioner->mesh.device_count()); ++d) {
    mt::train::DeviceMemory line{devices.client->devices()[d].description, bytes,
                                 mt::train::read_ram_stats().total};
    if (const auto stats = devices.client->memory_stats(d)) {
      line.used = stats->in_use;
      line.limit = stats->limit;
    }
    lines.push_back(std::move(line));
  }
  log_text(mt::train::memstats_lines("After load_params", lines));
  log_text(mt::train::ramstats_lines("After load_params", mt::train::read_ram_stats()));
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Prefill, insert, and one step a token; shows the text on a terminal as it comes. Compiling is
// done before, so that the rates are the machine's.
std::string generate(serve::Engine& engine, const Config& config, const data::Tokenizer& tokenizer,
                     const std::vector<int32_t>& prompt) {
  const bool streams = isatty(STDOUT_FILENO) != 0;
  data::StreamDecoder decoder(tokenizer);
  std::string text;
  const auto show = [&](const std::string& piece) {
    text += piece;
    if (!streams) return;
    fmt::print("{}", piece);
    std::fflush(stdout);
  };
  show(config.text("prompt"));
  const auto start = Clock::now();
  serve::Prefix prefix = engine.prefill(prompt, sampling_from(config));
  const double prefill_seconds = seconds_since(start);
  int32_t id = prefix.first.id;
  engine.insert(std::move(prefix), 0);
  const auto begin = Clock::now();
  int64_t generated = 0;
  while (config.flag("ignore_eos") || !is_end(tokenizer, id)) {
    // A model may have rows that no piece belongs to.
    show(id < tokenizer.vocab_size() ? decoder.push(id) : decoder.flush() + "\uFFFD");
    if (engine.length(0) + 1 >= engine.options().max_length) break;
    id = engine.generate()[0].id;
    ++generated;
  }
  const double seconds = seconds_since(begin);
  show(decoder.flush());
  if (streams) fmt::print("\n");
  log_line(
      "Prefill: {} tokens in {:.3f} s ({:.1f} tokens/s). Generation: {} steps in {:.3f} s "
      "({:.1f} tokens/s).",
      prompt.size(), prefill_seconds, static_cast<double>(prompt.size()) / prefill_seconds,
      generated, seconds, static_cast<double>(generated) / std::max(seconds, 1e-9));
  return text.substr(config.text("prompt").size());
}

}  // namespace

int decode(const std::vector<std::string>& args) {
  for (const std::string& word : args) {
    if (word != "--help" && word != "-h") continue;
    fmt::print("usage: maxtext decode [CONFIG.yml] key=value ...\n\n{}", config::help());
    return 0;
  }
  const auto config = Config::load(args, config::process_environment());
  for (const std::string& line : config.log_lines()) log_text(line);
  for (const std::string& line : config.warnings()) log_warning("{}", line);
  const serve::EngineOptions options = engine_options(config);
  sampling_from(config);  // refuses before anything is loaded
  const auto tokenizer = data::open_tokenizer(
      data::tokenizer_path(config.text("tokenizer_path"), config.text("load_parameters_path")),
      models::gemma3::sizes_from(config).vocab_size);
  const std::vector<int32_t> prompt = prompt_tokens(config, tokenizer);
  const auto devices = models::gemma3::open_devices(config);
  serve::Engine engine(config, devices, options);
  engine.load_params();
  report_memory(devices, engine.bytes_on_device());
  log_line("Cache: {:.1f} MB a slot of {} tokens",
           static_cast<double>(engine.cache_bytes_per_slot()) / 1e6, options.max_length);
  engine.compile(static_cast<int64_t>(prompt.size()), sampling_from(config));
  const std::string text = generate(engine, config, tokenizer, prompt);
  log_line("Input `{}` -> `{}`", config.text("prompt"), text);
  const std::string& expected = config.text("autoregressive_decode_assert");
  if (!text.starts_with(expected)) {
    throw fail(ErrorKind::kConfig, "generated text mismatch: expected it to begin with `{}`",
               expected);
  }
  return 0;
}

}  // namespace mt::commands
