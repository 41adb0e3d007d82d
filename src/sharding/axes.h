// MaxText's names of mesh axes and of logical axes, so that no code spells one as a literal.
#pragma once

#include <array>
#include <string_view>

namespace mt::sharding {

// The mesh axes in MaxText's order, outermost first. The keys are ici_<name>_parallelism and
// dcn_<name>_parallelism, except that "stage" is set by ..._pipeline_parallelism.
inline constexpr std::array<std::string_view, 12> kMeshAxes = {"data",
                                                               "stage",
                                                               "fsdp",
                                                               "fsdp_transpose",
                                                               "sequence",
                                                               "context",
                                                               "context_autoregressive",
                                                               "tensor",
                                                               "tensor_transpose",
                                                               "tensor_sequence",
                                                               "expert",
                                                               "autoregressive"};

namespace axes {

// Parameters.
inline constexpr std::string_view vocab = "vocab";
inline constexpr std::string_view embed = "embed";
inline constexpr std::string_view heads = "heads";
inline constexpr std::string_view q_heads = "q_heads";
inline constexpr std::string_view kv_heads = "kv_heads";
inline constexpr std::string_view kv = "kv";
inline constexpr std::string_view kv_head_dim = "kv_head_dim";
inline constexpr std::string_view mlp = "mlp";
inline constexpr std::string_view norm = "norm";
inline constexpr std::string_view layers = "layers";

// Activations.
inline constexpr std::string_view activation_batch = "activation_batch";
inline constexpr std::string_view activation_batch_no_exp = "activation_batch_no_exp";
inline constexpr std::string_view activation_embed_and_logits_batch =
    "activation_embed_and_logits_batch";
inline constexpr std::string_view activation_kv_batch = "activation_kv_batch";
inline constexpr std::string_view activation_prefill_kv_batch = "activation_prefill_kv_batch";
inline constexpr std::string_view activation_heads = "activation_heads";
inline constexpr std::string_view activation_kv_heads = "activation_kv_heads";
inline constexpr std::string_view activation_length = "activation_length";
inline constexpr std::string_view activation_length_no_exp = "activation_length_no_exp";
inline constexpr std::string_view activation_norm_length = "activation_norm_length";
inline constexpr std::string_view prefill_activation_length = "prefill_activation_length";
inline constexpr std::string_view prefill_activation_norm_length = "prefill_activation_norm_length";
inline constexpr std::string_view activation_q_length = "activation_q_length";
inline constexpr std::string_view activation_kv_length = "activation_kv_length";
inline constexpr std::string_view activation_embed = "activation_embed";
inline constexpr std::string_view activation_mlp = "activation_mlp";
inline constexpr std::string_view activation_kv = "activation_kv";
inline constexpr std::string_view activation_kv_head_dim = "activation_kv_head_dim";
inline constexpr std::string_view activation_vocab = "activation_vocab";

// Decoding.
inline constexpr std::string_view decode_batch = "decode_batch";
inline constexpr std::string_view decode_length = "decode_length";
inline constexpr std::string_view cache_batch = "cache_batch";
inline constexpr std::string_view cache_batch_prefill = "cache_batch_prefill";
inline constexpr std::string_view cache_sequence = "cache_sequence";
inline constexpr std::string_view cache_heads = "cache_heads";
inline constexpr std::string_view cache_kv = "cache_kv";

}  // namespace axes
}  // namespace mt::sharding
