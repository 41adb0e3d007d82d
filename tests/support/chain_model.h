// Weights by which each token is followed by a chosen one: what decoding prints is then known to
// the letter. Embeddings are one-hot, attention gives nothing, and the MLP turns a token into its
// follower, twice as strong as the token itself.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"

namespace mt::testing {

// The keys of the model; the vocabulary has as many rows as the model is wide.
inline std::vector<std::string> chain_words(int64_t vocab_size) {
  const std::string size = std::to_string(vocab_size);
  return {"model_name=gemma3-4b",   "override_model_config=true",  "base_num_decoder_layers=1",
          "base_num_query_heads=1", "base_num_kv_heads=1",         "head_dim=2",
          "base_emb_dim=" + size,   "base_mlp_dim=" + size,        "vocab_size=" + size,
          "sliding_window_size=4",  "rope_linear_scaling_factor=1"};
}

// A token without a follower is followed by itself.
inline void write_chain_model(const std::string& path, int64_t vocab_size,
                              const std::map<int32_t, int32_t>& followers) {
  const int64_t v = vocab_size, head = 2;
  std::vector<std::pair<std::string, Tensor>> tensors;
  const auto add = [&](const std::string& name, Shape shape) -> Tensor& {
    return tensors.emplace_back("model." + name + ".weight", Tensor(DType::kF32, std::move(shape)))
        .second;
  };
  const auto set = [&](Tensor& t, int64_t row, int64_t column, float value) {
    t.mutable_data<float>()[static_cast<size_t>(row * v + column)] = value;
  };
  const auto identity = [&](const std::string& name) {
    Tensor& t = add(name, {v, v});
    for (int64_t i = 0; i < v; ++i) set(t, i, i, 1);
  };
  identity("embed_tokens");
  add("norm", {v});
  const std::string layer = "layers.0.";
  for (const char* norm :
       {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm"}) {
    add(layer + norm, {v});
  }
  for (float& x : add(layer + "post_feedforward_layernorm", {v}).mutable_data<float>()) x = 1;
  for (const char* projection : {"q_proj", "k_proj", "v_proj"}) {
    add(layer + "self_attn." + projection, {head, v});
  }
  add(layer + "self_attn.o_proj", {v, head});
  for (const char* norm : {"q_norm", "k_norm"}) add(layer + "self_attn." + norm, {head});
  identity(layer + "mlp.gate_proj");
  identity(layer + "mlp.up_proj");
  Tensor& down = add(layer + "mlp.down_proj", {v, v});
  for (const auto& [from, to] : followers) set(down, to, from, 1);
  checkpoint::write_safetensors(path, tensors);
}

}  // namespace mt::testing
