// An engine on a small model with random weights: 8 layers, a window of 8, 64 tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "serve/engine.h"
#include "support/small_model.h"

namespace mt::serve::testing {

using Tokens = std::vector<int32_t>;

inline constexpr int64_t kVocab = 64;

inline config::Config small_config(const std::vector<std::string>& more = {},
                                   const std::string& cache = "") {
  std::vector<std::string> words{"model_name=gemma3-4b",
                                 "override_model_config=True",
                                 "base_num_decoder_layers=8",
                                 "base_emb_dim=32",
                                 "base_num_query_heads=4",
                                 "base_num_kv_heads=2",
                                 "head_dim=8",
                                 "base_mlp_dim=48",
                                 "vocab_size=64",
                                 "sliding_window_size=8",
                                 "dtype=float32",
                                 "attention=dot_product",
                                 "init_weights_seed=3",
                                 "jax_cache_dir=" + cache};
  for (const std::string& word : more) {  // later words replace earlier ones
    const std::string key = word.substr(0, word.find('=') + 1);
    std::erase_if(words, [&](const std::string& w) { return w.starts_with(key); });
    words.push_back(word);
  }
  return mt::testing::config_of(words);
}

struct Small {
  explicit Small(EngineOptions o, const std::vector<std::string>& more = {},
                 const std::string& cache = "")
      : config(small_config(more, cache)), devices(models::gemma3::open_devices(config)) {
    o.keep_logits = true;
    if (o.cache_dtype == EngineOptions{}.cache_dtype) o.cache_dtype = DType::kF32;
    engine = std::make_unique<Engine>(config, devices, o);
    engine->load_params();
  }
  config::Config config;
  models::gemma3::Devices devices;
  std::unique_ptr<Engine> engine;
};

inline Tokens random_tokens(int64_t count, uint64_t seed) {
  Tokens out;
  const RandomKey key = random_key(seed);
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(static_cast<int32_t>(random_bits_at(key, static_cast<uint64_t>(i)) % kVocab));
  }
  return out;
}

}  // namespace mt::serve::testing
