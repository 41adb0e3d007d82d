#include "commands/sampling_keys.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/error.h"

namespace mt::commands {
namespace {

using config::Config;

template <typename T>
bool read_number(std::string_view text, T& to) {
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), to);
  return fault == std::errc{} && end == text.data() + text.size();
}

// "id:bias,id:bias"
std::map<int32_t, float> read_bias(std::string_view text, int64_t vocab_size) {
  std::map<int32_t, float> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view entry = text.substr(0, end);
    const size_t colon = std::min(entry.find(':'), entry.size());
    int32_t id = 0;
    float bias = 0;
    if (colon == entry.size() || !read_number(entry.substr(0, colon), id) ||
        !read_number(entry.substr(colon + 1), bias) || !std::isfinite(bias) ||
        end + 1 == text.size()) {
      throw fail(ErrorKind::kConfig, "decode_logit_bias: '{}' is not id:bias, such as 107:-100",
                 entry);
    }
    if (id < 0 || id >= vocab_size) {
      throw fail(ErrorKind::kConfig, "decode_logit_bias: token {}, but vocab_size={}", id,
                 vocab_size);
    }
    if (!out.emplace(id, bias).second) {
      throw fail(ErrorKind::kConfig, "decode_logit_bias: token {} stands there twice", id);
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

void read_strategy(const Config& config, serve::Sampling& s) {
  const std::string& strategy = config.text("decode_sampling_strategy");
  if (strategy == "greedy") return;
  s.temperature = static_cast<float>(config.number("decode_sampling_temperature"));
  s.min_p = static_cast<float>(config.number("decode_sampling_min_p"));
  s.seed = static_cast<uint64_t>(config.integer("decode_sampling_seed"));
  const auto needs = [&](const char* key, bool given) {
    if (!given) {
      throw fail(ErrorKind::kConfig, "decode_sampling_strategy={} needs {} above 0", strategy, key);
    }
  };
  if (strategy == "topk" || strategy == "composite") {
    // More than the vocabulary is all of it.
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    s.top_k = static_cast<int32_t>(std::min(config.integer("decode_sampling_top_k"), kMost));
    needs("decode_sampling_top_k", s.top_k > 0);
  }
  if (strategy == "nucleus" || strategy == "composite") {
    s.nucleus_p = static_cast<float>(config.number("decode_sampling_nucleus_p"));
    needs("decode_sampling_nucleus_p", s.nucleus_p > 0);
  }
}

}  // namespace

serve::Sampling sampling_from(const Config& config) {
  serve::Sampling s;
  read_strategy(config, s);
  const auto number = [&](const char* key) { return static_cast<float>(config.number(key)); };
  s.repetition_penalty = number("decode_sampling_repetition_penalty");
  s.presence_penalty = number("decode_sampling_presence_penalty");
  s.frequency_penalty = number("decode_sampling_frequency_penalty");
  s.logit_bias = read_bias(config.text("decode_logit_bias"), config.integer("vocab_size"));
  s.top_log_probs = static_cast<int32_t>(config.integer("decode_top_log_probs"));
  if (s.top_log_probs > 0 && !config.flag("return_log_prob")) {
    throw fail(ErrorKind::kConfig, "decode_top_log_probs={} needs return_log_prob=true",
               s.top_log_probs);
  }
  return s;
}

}  // namespace mt::commands
