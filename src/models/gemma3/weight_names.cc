#include "models/gemma3/weight_names.h"

#include <array>
#include <charconv>

#include <fmt/core.h>

#include "base/error.h"

namespace mt::models::gemma3 {
namespace {

using C = Gemma3Config;

Shape emb(const C& c) { return {c.emb_dim}; }
Shape head(const C& c) { return {c.head_dim}; }
Shape query(const C& c) { return {c.emb_dim, c.num_query_heads, c.head_dim}; }
Shape key_value(const C& c) { return {c.emb_dim, c.num_kv_heads, c.head_dim}; }
Shape attention_out(const C& c) { return {c.num_query_heads, c.head_dim, c.emb_dim}; }
Shape mlp_in(const C& c) { return {c.emb_dim, c.mlp_dim}; }
Shape mlp_out(const C& c) { return {c.mlp_dim, c.emb_dim}; }

constexpr Form kN = Form::kNorm;
constexpr Form kK = Form::kKernel;
constexpr std::array kLeaves = {
    Leaf{"pre_self_attention_norm/scale", "input_layernorm", "attn_norm", kN, 0, emb},
    Leaf{"self_attention/query/kernel", "self_attn.q_proj", "attn_q", kK, 1, query},
    Leaf{"self_attention/key/kernel", "self_attn.k_proj", "attn_k", kK, 1, key_value},
    Leaf{"self_attention/value/kernel", "self_attn.v_proj", "attn_v", kK, 1, key_value},
    Leaf{"self_attention/out/kernel", "self_attn.o_proj", "attn_output", kK, 2, attention_out},
    Leaf{"self_attention/query_norm/scale", "self_attn.q_norm", "attn_q_norm", kN, 0, head},
    Leaf{"self_attention/key_norm/scale", "self_attn.k_norm", "attn_k_norm", kN, 0, head},
    Leaf{"post_self_attention_norm/scale", "post_attention_layernorm", "post_attention_norm", kN, 0,
         emb},
    Leaf{"pre_ffw_norm/scale", "pre_feedforward_layernorm", "ffn_norm", kN, 0, emb},
    Leaf{"mlp/wi_0/kernel", "mlp.gate_proj", "ffn_gate", kK, 1, mlp_in},
    Leaf{"mlp/wi_1/kernel", "mlp.up_proj", "ffn_up", kK, 1, mlp_in},
    Leaf{"mlp/wo/kernel", "mlp.down_proj", "ffn_down", kK, 1, mlp_out},
    Leaf{"post_ffw_norm/scale", "post_feedforward_layernorm", "post_ffw_norm", kN, 0, emb},
};

// Cuts `prefix` off the front of `text` if it is there.
bool cut_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// "<layer>.<leaf>.weight" with the leaf's name taken from `column`.
std::optional<std::string> logical_layer(std::string_view text, std::string_view Leaf::*column) {
  const auto split = split_number(text, '.');
  if (!split || !split->rest.ends_with(".weight")) return std::nullopt;
  const std::string_view name = split->rest.substr(0, split->rest.size() - 7);
  for (const Leaf& leaf : kLeaves) {
    if (leaf.*column == name) return layer_name(split->number, leaf.maxtext);
  }
  return std::nullopt;
}

}  // namespace

std::span<const Leaf> layer_leaves() { return kLeaves; }

std::string layer_name(int64_t layer, std::string_view leaf) {
  return fmt::format("decoder/layers_{}/{}", layer, leaf);
}

std::optional<NumberedName> split_number(std::string_view text, char separator) {
  const size_t end = text.find(separator);
  if (end == std::string_view::npos || end == 0 || end > 6 || (end > 1 && text[0] == '0')) {
    return std::nullopt;
  }
  NumberedName out;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + end, out.number);
  if (error != std::errc() || stop != text.data() + end || out.number < 0) return std::nullopt;
  out.rest = text.substr(end + 1);
  return out;
}

std::optional<LogicalName> parse_logical_name(std::string_view name) {
  if (name == kEmbeddingName) return LogicalName{Form::kEmbedding, nullptr, -1};
  if (name == kFinalNormName) return LogicalName{Form::kNorm, nullptr, -1};
  if (!cut_prefix(name, "decoder/layers_")) return std::nullopt;
  const auto split = split_number(name, '/');
  if (!split) return std::nullopt;
  for (const Leaf& leaf : kLeaves) {
    if (leaf.maxtext == split->rest) return LogicalName{leaf.form, &leaf, split->number};
  }
  return std::nullopt;
}

std::optional<std::string> logical_from_hf(std::string_view name) {
  // Text-only files, files saved by transformers, multimodal files as published.
  if (!cut_prefix(name, "model.language_model.") && !cut_prefix(name, "language_model.model.") &&
      !cut_prefix(name, "model.")) {
    return std::nullopt;
  }
  if (name == "embed_tokens.weight") return std::string(kEmbeddingName);
  if (name == "norm.weight") return std::string(kFinalNormName);
  if (!cut_prefix(name, "layers.")) return std::nullopt;
  return logical_layer(name, &Leaf::hf);
}

std::optional<std::string> logical_from_gguf(std::string_view name) {
  if (name == "token_embd.weight") return std::string(kEmbeddingName);
  if (name == "output_norm.weight") return std::string(kFinalNormName);
  if (!cut_prefix(name, "blk.")) return std::nullopt;
  return logical_layer(name, &Leaf::gguf);
}

std::string gguf_from_logical(std::string_view logical) {
  if (logical == kEmbeddingName) return "token_embd.weight";
  if (logical == kFinalNormName) return "output_norm.weight";
  const auto parsed = parse_logical_name(logical);
  MT_CHECK(parsed && parsed->leaf);
  return fmt::format("blk.{}.{}.weight", parsed->layer, parsed->leaf->gguf);
}

}  // namespace mt::models::gemma3
