#include "models/gemma3/from_gguf.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/error.h"
#include "models/gemma3/source_sizes.h"

namespace mt::models::gemma3 {
namespace {

using checkpoint::GgufFile;
using checkpoint::GgufValue;

constexpr int64_t kLayersOf27b = 62;

// Metadata under "gemma3.".
class Keys {
 public:
  explicit Keys(const GgufFile& file) : file_(file) {}

  const GgufValue* find(std::string_view key) const {
    return file_.metadata(fmt::format("gemma3.{}", key));
  }
  // Runs `read`, naming the key in what it throws.
  template <typename F>
  auto named(std::string_view key, F read) const {
    try {
      return read();
    } catch (const Error& wrong) {
      throw error(key, wrong.what());
    }
  }
  int64_t whole(std::string_view key, std::optional<int64_t> fallback = {}) const {
    const GgufValue* value = find(key);
    if (!value && fallback) return *fallback;
    if (!value) throw error(key, "missing");
    return named(key, [&] { return value->as_int(); });
  }
  // Float32 in the file; given as the shortest decimal that it stands for (1e-6, not 9.99e-7).
  double number(std::string_view key, double fallback) const {
    const GgufValue* value = find(key);
    if (!value) return fallback;
    const double stored = named(key, [&] { return value->as_double(); });
    return std::strtod(fmt::format("{}", static_cast<float>(stored)).c_str(), nullptr);
  }
  std::string text(std::string_view key, const std::string& fallback) const {
    const GgufValue* value = find(key);
    return value ? named(key, [&] { return value->as_string(); }) : fallback;
  }
  Error error(std::string_view key, std::string_view what) const {
    return fail(ErrorKind::kConfig, "{}: gemma3.{}: {}", file_.path(), key, what);
  }

 private:
  const GgufFile& file_;
};

void check_architecture(const GgufFile& file) {
  const GgufValue* value = file.metadata("general.architecture");
  const auto* name = value ? std::get_if<std::string>(&value->get()) : nullptr;
  if (name && *name == "gemma3") return;
  throw fail(ErrorKind::kConfig, "{}: general.architecture is {}, expected \"gemma3\"", file.path(),
             name ? "\"" + *name + "\"" : "missing");
}

int64_t table_rows(const GgufFile& file) {
  const auto* table = file.find("token_embd.weight");
  if (!table || table->shape.size() != 2) {
    throw fail(ErrorKind::kConfig, "{}: no table \"token_embd.weight\"", file.path());
  }
  return table->shape[0];
}

// Newer files may state the pattern, as a period or as one bool a layer.
void check_pattern(const Keys& keys, int64_t layers) {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  const GgufValue* value = keys.find(kKey);
  if (!value) return;
  const auto* local = std::get_if<std::vector<uint8_t>>(&value->get());
  if (local && static_cast<int64_t>(local->size()) != layers) {
    throw keys.error(kKey, fmt::format("{} entries for {} layers", local->size(), layers));
  }
  const int64_t period = local ? 0 : keys.whole(kKey);
  if (!local && period < 1) throw keys.error(kKey, "expected at least 1");
  for (int64_t i = 0; i < layers; ++i) {
    const bool global = local ? (*local)[static_cast<size_t>(i)] == 0 : (i + 1) % period == 0;
    if (global == Gemma3Config::is_global(i)) continue;
    throw keys.error(kKey, fmt::format("layer {} is {}, expected every {}th to be global", i,
                                       global ? "global" : "sliding", kPattern));
  }
}

double linear_factor(const Keys& keys) {
  const std::string type = keys.text("rope.scaling.type", "none");
  if (type == "none") return 1;
  if (type != "linear") {
    throw keys.error("rope.scaling.type",
                     fmt::format("\"{}\" is not supported, only none and linear", type));
  }
  const double factor = keys.number("rope.scaling.factor", 0);
  if (!(factor > 0)) throw keys.error("rope.scaling.factor", "must be > 0");
  return factor;
}

}  // namespace

Gemma3Config config_from_gguf(const GgufFile& file) {
  check_architecture(file);
  const Keys keys(file);
  Gemma3Config config;
  config.num_decoder_layers = keys.whole("block_count");
  config.emb_dim = keys.whole("embedding_length");
  config.mlp_dim = keys.whole("feed_forward_length");
  config.num_query_heads = keys.whole("attention.head_count");
  config.num_kv_heads = keys.whole("attention.head_count_kv", config.num_query_heads);
  const int64_t per_head = config.emb_dim / std::max<int64_t>(1, config.num_query_heads);
  config.head_dim = keys.whole("attention.key_length", per_head);
  if (keys.whole("attention.value_length", config.head_dim) != config.head_dim) {
    throw keys.error("attention.value_length", "differs from attention.key_length");
  }
  config.vocab_size = table_rows(file);
  if (config.vocab_size == 262'208) config.vocab_size = 262'144;  // 64 image placeholders
  config.sliding_window_size = keys.whole("attention.sliding_window");
  config.normalization_layer_epsilon = keys.number("attention.layer_norm_rms_epsilon", 1e-6);
  config.rope_max_timescale = keys.number("rope.freq_base", 1'000'000);
  config.local_rope_max_timescale = keys.number("rope.freq_base_swa", 10'000);
  check_source_sizes(config, file.path());
  // The format has no key for the query scale; the 27B, known by its depth, is the one exception.
  config.query_pre_attn_scalar = static_cast<double>(config.num_decoder_layers == kLayersOf27b
                                                         ? config.emb_dim / config.num_query_heads
                                                         : config.head_dim);
  check_pattern(keys, config.num_decoder_layers);
  config.rope_linear_scaling_factor = linear_factor(keys);
  return config;
}

std::vector<SourceNumber> numbers_from_gguf(const GgufFile& file) {
  static constexpr std::pair<std::string_view, std::string_view> kNumbers[] = {
      {"block_count", "num_decoder_layers"},
      {"embedding_length", "emb_dim"},
      {"feed_forward_length", "mlp_dim"},
      {"attention.head_count", "num_query_heads"},
      {"attention.head_count_kv", "num_kv_heads"},
      {"attention.key_length", "head_dim"},
      {"attention.sliding_window", "sliding_window_size"},
      {"attention.layer_norm_rms_epsilon", "normalization_layer_epsilon"},
      {"rope.freq_base", "rope_max_timescale"},
      {"rope.freq_base_swa", "local_rope_max_timescale"},
      {"rope.scaling.factor", "rope_linear_scaling_factor"}};
  const Keys keys(file);
  const Gemma3Config config = config_from_gguf(file);
  std::vector<SourceNumber> out;
  for (const auto& [key, ours] : kNumbers) {
    if (!keys.find(key)) continue;
    out.push_back({fmt::format("{}: gemma3.{}", file.path(), key), ours, number_of(config, ours)});
  }
  return out;
}

}  // namespace mt::models::gemma3
