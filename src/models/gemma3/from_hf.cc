#include "models/gemma3/from_hf.h"

#include <optional>
#include <string>

#include "base/error.h"
#include "models/gemma3/source_sizes.h"

namespace mt::models::gemma3 {
namespace {

constexpr int64_t kTextVocabulary = 262'144;
constexpr int64_t kImagePlaceholders = 64;  // rows behind the text vocabulary in multimodal models

// `null` counts as absent: transformers writes it for "not set".
const Json* present(const Json& json, std::string_view key) {
  const Json* value = json.find(key);
  return value && !value->is_null() ? value : nullptr;
}

// Runs `read`, naming the key in what it throws.
template <typename F>
decltype(auto) named(std::string_view key, F read) {
  try {
    return read();
  } catch (const Error& error) {
    throw fail(ErrorKind::kConfig, "config.json: {}: {}", key, error.what());
  }
}

int64_t whole(const Json& json, std::string_view key, std::optional<int64_t> fallback = {}) {
  const Json* value = present(json, key);
  if (!value && fallback) return *fallback;
  if (!value) throw fail(ErrorKind::kConfig, "config.json: missing key \"{}\"", key);
  return named(key, [&] { return value->as_int(); });
}

double number(const Json& json, std::string_view key, double fallback) {
  const Json* value = present(json, key);
  return value ? named(key, [&] { return value->as_double(); }) : fallback;
}

std::string text(const Json& json, std::string_view key, std::string fallback) {
  const Json* value = present(json, key);
  return value ? named(key, [&] { return value->as_string(); }) : fallback;
}

void check_model_type(const Json& json) {
  const std::string type = text(json, "model_type", "");
  if (type == "gemma3" || type == "gemma3_text") return;
  throw fail(ErrorKind::kConfig, "config.json: model_type \"{}\", expected gemma3 or gemma3_text",
             type);
}

void check_unsupported(const Json& json) {
  const std::string activation = text(json, "hidden_activation", "gelu_pytorch_tanh");
  if (activation != "gelu_pytorch_tanh" && activation != "gelu") {
    throw fail(ErrorKind::kConfig, "config.json: hidden_activation \"{}\" is not Gemma 3's gelu",
               activation);
  }
  for (const char* key : {"attention_bias", "use_bidirectional_attention"}) {
    const Json* value = present(json, key);
    if (value && !(value->is_bool() && !value->as_bool())) {
      throw fail(ErrorKind::kConfig, "config.json: {} is set, which is not supported", key);
    }
  }
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (number(json, key, 0) != 0) {
      throw fail(ErrorKind::kConfig, "config.json: {} is set, which Gemma 3 does not have", key);
    }
  }
}

// Whether `layer` is a full-attention one, for the file's own way of saying it.
bool listed_global(const Json& item, int64_t layer) {
  const std::string& type =
      named("layer_types", [&]() -> const std::string& { return item.as_string(); });
  if (type == "full_attention") return true;
  if (type == "sliding_attention") return false;
  throw fail(ErrorKind::kConfig, "config.json: layer_types: layer {} is \"{}\"", layer, type);
}

void expect_kind(std::string_view key, int64_t layer, bool global) {
  if (global == Gemma3Config::is_global(layer)) return;
  throw fail(ErrorKind::kConfig,
             "config.json: {} makes layer {} {}, but every {}th layer and no other must be global",
             key, layer, global ? "global" : "sliding", kPattern);
}

void check_pattern(const Json& json, int64_t layers) {
  if (const Json* types = present(json, "layer_types")) {
    const auto& items =
        named("layer_types", [&]() -> const Json::Array& { return types->as_array(); });
    if (static_cast<int64_t>(items.size()) != layers) {
      throw fail(ErrorKind::kConfig, "config.json: layer_types has {} entries for {} layers",
                 items.size(), layers);
    }
    for (int64_t i = 0; i < layers; ++i) {
      expect_kind("layer_types", i, listed_global(items[static_cast<size_t>(i)], i));
    }
    return;
  }
  for (const char* key : {"sliding_window_pattern", "_sliding_window_pattern"}) {
    if (!present(json, key)) continue;
    const int64_t pattern = whole(json, key);
    if (pattern < 1) throw fail(ErrorKind::kConfig, "config.json: {} is {}", key, pattern);
    for (int64_t i = 0; i < layers; ++i) expect_kind(key, i, (i + 1) % pattern == 0);
    return;
  }
}

// The linear factor of one rope description; 1 for the default kind.
double linear_factor(const Json& rope, std::string_view where) {
  const std::string type = text(rope, "rope_type", text(rope, "type", "default"));
  if (type == "default") return 1;
  if (type != "linear") {
    throw fail(ErrorKind::kConfig,
               "config.json: {}: rope_type \"{}\" is not supported, only default and linear", where,
               type);
  }
  const double factor = number(rope, "factor", 0);
  if (!(factor > 0)) throw fail(ErrorKind::kConfig, "config.json: {}: factor must be > 0", where);
  return factor;
}

void read_rope(const Json& json, Gemma3Config& config) {
  config.rope_max_timescale = number(json, "rope_theta", 1'000'000);
  config.local_rope_max_timescale = number(json, "rope_local_base_freq", 10'000);
  const Json* parameters = present(json, "rope_parameters");
  if (!parameters) {
    const Json* scaling = present(json, "rope_scaling");
    if (scaling) config.rope_linear_scaling_factor = linear_factor(*scaling, "rope_scaling");
    return;
  }
  const Json* full = present(*parameters, "full_attention");
  const Json* sliding = present(*parameters, "sliding_attention");
  // Without the two kinds it is one description, which is the global layers'.
  const Json& global = full ? *full : *parameters;
  config.rope_max_timescale = number(global, "rope_theta", config.rope_max_timescale);
  config.rope_linear_scaling_factor = linear_factor(global, "rope_parameters");
  if (!sliding) return;
  config.local_rope_max_timescale = number(*sliding, "rope_theta", config.local_rope_max_timescale);
  if (linear_factor(*sliding, "rope_parameters.sliding_attention") != 1) {
    throw fail(ErrorKind::kConfig,
               "config.json: rope_parameters scales the sliding layers, which is not supported");
  }
}

int64_t text_vocabulary(int64_t rows) {
  return rows == kTextVocabulary + kImagePlaceholders ? kTextVocabulary : rows;
}

}  // namespace

Gemma3Config config_from_hf(const Json& root) {
  check_model_type(root);
  const Json* nested = present(root, "text_config");
  const Json& json = nested ? *nested : root;
  check_unsupported(json);
  Gemma3Config config;
  config.num_decoder_layers = whole(json, "num_hidden_layers");
  config.emb_dim = whole(json, "hidden_size");
  config.mlp_dim = whole(json, "intermediate_size");
  config.num_query_heads = whole(json, "num_attention_heads", 8);
  config.num_kv_heads = whole(json, "num_key_value_heads", 4);
  config.head_dim = whole(json, "head_dim", 256);
  config.vocab_size =
      text_vocabulary(whole(json, "vocab_size", kTextVocabulary + kImagePlaceholders));
  config.sliding_window_size = whole(json, "sliding_window", 4096);
  config.query_pre_attn_scalar = number(json, "query_pre_attn_scalar", 256);
  config.normalization_layer_epsilon = number(json, "rms_norm_eps", 1e-6);
  read_rope(json, config);
  check_source_sizes(config, "config.json");
  check_pattern(json, config.num_decoder_layers);
  return config;
}

std::vector<SourceNumber> numbers_from_hf(const Json& root, const std::string& folder) {
  const Json* nested = present(root, "text_config");
  const bool parameters = present(nested ? *nested : root, "rope_parameters") != nullptr;
  const std::pair<std::string_view, std::string_view> numbers[] = {
      {"num_hidden_layers", "num_decoder_layers"},
      {"hidden_size", "emb_dim"},
      {"intermediate_size", "mlp_dim"},
      {"num_attention_heads", "num_query_heads"},
      {"num_key_value_heads", "num_kv_heads"},
      {"head_dim", "head_dim"},
      {"sliding_window", "sliding_window_size"},
      {"rms_norm_eps", "normalization_layer_epsilon"},
      {"query_pre_attn_scalar", "query_pre_attn_scalar"},
      {parameters ? "rope_parameters: rope_theta" : "rope_theta", "rope_max_timescale"},
      {parameters ? "rope_parameters: rope_theta of sliding_attention" : "rope_local_base_freq",
       "local_rope_max_timescale"},
      {parameters ? "rope_parameters: factor" : "rope_scaling: factor",
       "rope_linear_scaling_factor"}};
  const Gemma3Config config = config_from_hf(root);
  std::vector<SourceNumber> out;
  for (const auto& [key, ours] : numbers) {
    out.push_back({fmt::format("{}/config.json: {}", folder, key), ours, number_of(config, ours)});
  }
  return out;
}

}  // namespace mt::models::gemma3
