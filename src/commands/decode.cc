#include "commands/decode.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <limits>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/visible.h"
#include "commands/chat.h"
#include "commands/sampling_keys.h"
#include "config/config.h"
#include "data/open_tokenizer.h"
#include "data/utf8.h"
#include "models/gemma3/from_run.h"
#include "serve/conversation.h"
#include "serve/engine.h"
#include "serve/generate_text.h"
#include "serve/quantised_params.h"
#include "train/log_lines.h"

namespace mt::commands {
namespace {

using config::Config;

constexpr int64_t kUsualTurn = 32;  // tokens; its programs are ready before the first turn

serve::EngineOptions engine_options(const Config& config, bool chats) {
  serve::EngineOptions o;
  o.max_length = config.integer("max_target_length");
  o.chunk = config.integer("prefill_chunk_size");
  o.cache_dtype = config.flag("quantize_kvcache") ? DType::kS8 : *parse_dtype(config.text("dtype"));
  o.ahead = config.integer("prompt_lookup_num_tokens");
  const int64_t prefill = config.integer("max_prefill_predict_length");
  if (!chats && prefill >= o.max_length) {  // a conversation has no prompt of its own
    throw fail(ErrorKind::kConfig,
               "max_prefill_predict_length={} leaves no room to generate in max_target_length={}",
               prefill, o.max_length);
  }
  return o;
}

// What a conversation has no use for is refused, not ignored.
void check_chat(const Config& config) {
  if (!config.text("autoregressive_decode_assert").empty()) {
    throw fail(ErrorKind::kConfig, "autoregressive_decode_assert is of one prompt, not of --chat");
  }
  if (config.flag("return_log_prob")) {
    throw fail(ErrorKind::kConfig, "return_log_prob is of one prompt, not of --chat");
  }
  if (const auto at = data::first_invalid_utf8(config.text("chat_system_prompt"))) {
    throw fail(ErrorKind::kConfig, "chat_system_prompt: not valid UTF-8 at byte {}", *at);
  }
}

// That a conversation's first turn can be held.
void check_turns(const Config& config, const data::Tokenizer& tokenizer, const std::string& path) {
  for (const char* piece : {"<start_of_turn>", "<end_of_turn>"}) {
    if (tokenizer.id_of(piece) >= 0) continue;
    throw fail(ErrorKind::kConfig, "{}: no piece {}, which a conversation (--chat) needs", path,
               piece);
  }
  const std::string& system = config.text("chat_system_prompt");
  const size_t opening = serve::turn_opening(tokenizer, system, "", true).size();
  if (static_cast<int64_t>(opening) + 2 <= config.integer("max_target_length")) return;
  throw fail(ErrorKind::kConfig,
             "{} and Gemma's template have {} tokens, which leaves no room for a turn in "
             "max_target_length={}",
             system.empty() ? "--chat: an empty turn" : "chat_system_prompt", opening,
             config.integer("max_target_length"));
}

std::vector<int32_t> prompt_tokens(const Config& config, const data::Tokenizer& tokenizer) {
  if (const auto at = data::first_invalid_utf8(config.text("prompt"))) {
    throw fail(ErrorKind::kConfig, "prompt: not valid UTF-8 at byte {}", *at);
  }
  const auto ids = tokenizer.encode(config.text("prompt"), {.add_bos = config.flag("add_bos")});
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

// Before anything is compiled: the caches of the slot and of the prompt, and nothing else.
void check_caches_fit(const serve::Engine& engine, const models::gemma3::Devices& devices) {
  int64_t most = mt::train::available_memory();
  if (!devices.client->is_cpu()) {
    const auto stats = devices.client->memory_stats(0);
    most = stats && stats->limit ? *stats->limit : std::numeric_limits<int64_t>::max();
  }
  const double need = 2 * static_cast<double>(engine.cache_bytes_per_slot());
  if (need <= static_cast<double>(most)) return;
  constexpr double kGb = 1073741824.0;
  throw fail(ErrorKind::kLimit,
             "max_target_length={}: the caches of so many tokens need {:.1f} GB, but {:.1f} GB of "
             "memory is available",
             engine.options().max_length, need / kGb, static_cast<double>(most) / kGb);
}

// What decoding does that the user may not expect.
void say_how(const Config& config, const models::gemma3::Devices& devices) {
  const std::string& weights = config.text("load_parameters_path");
  if (weights.empty()) {
    log_text("load_parameters_path is not set: the weights are random, and so is the text.");
  }
  const int64_t count = devices.partitioner->mesh.device_count();
  if (count > 1 && devices.client->is_cpu()) {
    log_line("{} CPU devices decode far slower than one: they are for trying out a mesh.", count);
  }
  if (weights.ends_with(".gguf") && !config.flag("dequantize_weights") &&
      (count > 1 || !devices.client->is_cpu())) {
    log_line("The file's blocks are turned into {}: only one CPU device computes with them.",
             config.text("weight_dtype"));
  }
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Generated {
  std::string text;
  std::vector<float> prompt_log_probs;
  std::vector<serve::Token> tokens;  // with the end, if one came
};

// With the alternatives, if any were asked for.
void report_log_probs(const data::Tokenizer& tokenizer, const std::vector<int32_t>& prompt,
                      const Generated& generated) {
  const auto piece = [&](int32_t id) {
    return id < tokenizer.vocab_size() ? visible_in_line(tokenizer.piece(id))
                                       : fmt::format("token {}", id);
  };
  for (size_t i = 0; i < prompt.size(); ++i) {
    const float p = generated.prompt_log_probs[i];
    log_line("log p of prompt {:4}: {:>9} `{}`", i, i == 0 ? "" : fmt::format("{:.4f}", p),
             piece(prompt[i]));
  }
  for (size_t i = 0; i < generated.tokens.size(); ++i) {
    const serve::Token& t = generated.tokens[i];
    std::string others;
    for (const auto& [id, p] : t.top) {
      others += fmt::format("{} `{}` {:.4f}", others.empty() ? " of" : ",", piece(id), p);
    }
    log_line("log p of output {:4}: {:9.4f} `{}`{}", i, t.log_prob, piece(t.id), others);
  }
}

// Prefill, insert, and one step a token, until the end or a signal; shows the text on a terminal as
// it comes. Compiling is done before, so that the rates are the machine's.
Generated generate(serve::Engine& engine, const Config& config, const data::Tokenizer& tokenizer,
                   const std::vector<int32_t>& prompt, StopSignals& signals) {
  const bool streams = isatty(STDOUT_FILENO) != 0;
  Generated out;
  const auto show = [&](const std::string& piece) {
    out.text += piece;
    if (!streams) return;
    fmt::print("{}", visible(piece));  // a model can write anything
    std::fflush(stdout);
  };
  signals.begin();
  log_line("Generating behind {} tokens, to {} at most.", prompt.size(),
           engine.options().max_length);
  show(config.text("prompt"));
  const serve::Sampling sampling = sampling_from(config);
  const auto start = Clock::now();
  serve::Prefix prefix =
      engine.prefill(prompt, sampling, {.log_probs = config.flag("return_log_prob")});
  const double prefill_seconds = seconds_since(start);
  out.prompt_log_probs = prefix.log_probs;
  const serve::Token first = prefix.first;
  engine.insert(std::move(prefix), 0);
  const auto ends = [&](int32_t id) { return !config.flag("ignore_eos") && is_end(tokenizer, id); };
  const auto begin = Clock::now();
  serve::Text text = serve::generate_text(
      engine, tokenizer, first, {0, sampling, ends, show, [&] { return signals.requested(); }});
  const double seconds = seconds_since(begin);
  out.tokens = std::move(text.tokens);
  if (streams) fmt::print("\n");
  if (text.guessed > 0) {
    log_line("Guessed from the text: {} of {} tokens were right.", text.right, text.guessed);
  }
  const int64_t generated = std::ssize(out.tokens) - 1;
  log_line(
      "Prefill: {} tokens in {:.3f} s ({:.1f} tokens/s). Generation: {} steps in {:.3f} s "
      "({:.1f} tokens/s).",
      prompt.size(), prefill_seconds, static_cast<double>(prompt.size()) / prefill_seconds,
      generated, seconds, static_cast<double>(generated) / std::max(seconds, 1e-9));
  out.text.erase(0, config.text("prompt").size());
  return out;
}

constexpr const char* kUse =
    "Continues prompt= with the model of model_name= and the weights of load_parameters_path=. A\n"
    "GGUF file brings its tokenizer; other weights need tokenizer_path=. max_target_length= "
    "counts\n"
    "prompt and output. --chat holds a conversation instead: a line is a turn, /reset begins "
    "anew,\n"
    "/exit or the end of the input ends it.\n";

// What a conversation and a single prompt begin with.
struct Opened {
  data::Tokenizer tokenizer;
  std::unique_ptr<models::gemma3::Devices> devices;  // stays where it is: the engine refers to it
  std::unique_ptr<serve::Engine> engine;
};

// Whatever can be wrong is noticed here, before weights are read and programs compiled. The
// tokenizer is read beside the devices: both take a while.
Opened open(const Config& config, bool chats) {
  // Every key, where a user asks for it: a prompt's output is short.
  if (config.was_set("log_config") && config.flag("log_config")) {
    for (const std::string& line : config.dump()) log_text(line);
  }
  const serve::EngineOptions options = engine_options(config, chats);
  const int64_t vocab_size = models::gemma3::sizes_from(config).vocab_size;
  check(sampling_from(config), vocab_size);
  serve::check_quantization_keys(config);
  auto reading = std::async(std::launch::async, [&] {
    const std::string path =
        data::tokenizer_path(config.text("tokenizer_path"), config.text("load_parameters_path"));
    auto tokenizer = data::open_tokenizer(path, vocab_size, {.add_bos = config.flag("add_bos")});
    if (chats) check_turns(config, tokenizer, path);
    const std::string note = data::padding_note(tokenizer, path, vocab_size);
    if (!note.empty()) log_text(note);
    return tokenizer;
  });
  auto devices = std::make_unique<models::gemma3::Devices>(models::gemma3::open_devices(config));
  auto engine = std::make_unique<serve::Engine>(config, *devices, options);
  check_caches_fit(*engine, *devices);
  return {reading.get(), std::move(devices), std::move(engine)};
}

void load(const Opened& run) {
  run.engine->load_params();
  report_memory(*run.devices, run.engine->bytes_on_device());
  log_line("Cache: {:.1f} MB a slot of {} tokens",
           static_cast<double>(run.engine->cache_bytes_per_slot()) / 1e6,
           run.engine->options().max_length);
}

int run_chat(const Config& config) {
  const LogToStderr answers_only;
  std::optional<StopSignals> signals("token");
  check_chat(config);
  const Opened run = open(config, true);
  run.engine->open_params();
  say_how(config, *run.devices);
  load(run);
  run.engine->compile(kUsualTurn, sampling_from(config));
  signals.reset();  // it has its own
  return chat(*run.engine, run.tokenizer, config);
}

int run_prompt(const Config& config) {
  StopSignals signals("token");
  const Opened run = open(config, false);
  const auto prompt = prompt_tokens(config, run.tokenizer);
  run.engine->open_params();
  say_how(config, *run.devices);
  auto compiling = std::async(std::launch::async, [&] {
    run.engine->compile(std::ssize(prompt), sampling_from(config),
                        {.log_probs = config.flag("return_log_prob")});
  });
  load(run);
  compiling.get();
  release_free_memory();
  const Generated generated = generate(*run.engine, config, run.tokenizer, prompt, signals);
  log_line("Input `{}` -> `{}`", config.text("prompt"), generated.text);
  if (config.flag("return_log_prob")) report_log_probs(run.tokenizer, prompt, generated);
  if (signals.requested()) {
    log_line("Stopped by {} after {} tokens.", signals.name(), generated.tokens.size());
    return 128 + signals.signal_number();
  }
  const std::string& expected = config.text("autoregressive_decode_assert");
  if (!generated.text.starts_with(expected)) {
    throw fail(ErrorKind::kConfig, "generated text mismatch: expected it to begin with `{}`",
               expected);
  }
  return 0;
}
}  // namespace

int decode(const std::vector<std::string>& args) {
  std::vector<std::string> words = args;
  const bool chats = std::erase(words, "--chat") > 0;
  for (const std::string& word : words) {
    if (word != "--help" && word != "-h") continue;
    fmt::print("usage: maxtext decode [CONFIG.yml] [--chat] key=value ...\n\n{}\n{}", kUse,
               config::help("Decoding"));
    return 0;
  }
  const auto config = Config::load(words, config::process_environment());
  return chats ? run_chat(config) : run_prompt(config);
}

}  // namespace mt::commands
