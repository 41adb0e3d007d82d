// CPU kernels that compiled programs call through XLA's typed FFI (StableHLO custom calls with
// api_version 4, ir::custom_call), for decoding with weights that stay as they are in a GGUF file.
//
// A weight of N rows and K columns in blocks is u8[N, row_bytes], where row_bytes is K / elements *
// bytes of checkpoint::find_block_format(type), and `type` is ggml's type number (8: Q8_0). Any
// call that doesn't fit its row below ends its program with INVALID_ARGUMENT and a text that names
// the argument, result or attribute; nothing is read or written then.
//
// | target              | operands                   | attributes (i64)      | results           |
// |---------------------|----------------------------|-----------------------|-------------------|
// | mt_dequantise       | blocks u8[..., row_bytes]  | type                  | f32/bf16 [..., K] |
// | mt_quantised_matmul | x f32[..., K], then one or | type_0, type_1, ...   | a weight:         |
// |                     | more u8[N_i, row_bytes_i]  |                       | f32[..., N_i]     |
// | mt_matvec           | x f32[..., K], then one or | none                  | a weight:         |
// |                     | more f32/bf16/f16 [N_i, K] |                       | f32[..., N_i]     |
// | mt_cache_attention  | q [B, T, N, H], k and      | window                | context [B,T,N,H],|
// |                     | v [B, T, K, H], start and  |                       | then the caches   |
// |                     | count s32 [B], caches      |                       | (and scales), in  |
// |                     | [B, K, C, H] (of s8: also  |                       | their own memory  |
// |                     | scales f32 [B, K, C, 1])   |                       |                   |
// | mt_rms_norm         | x [..., D], scale [D], and | epsilon, factor (f64) | like x            |
// |                     | with rope cos and sin      |                       |                   |
// |                     | [B, T, H/2]; x [B,T,N,H]   |                       |                   |
// | mt_greedy           | logits f32 [B, V]          | none                  | token s32 [B],    |
// |                     |                            |                       | log prob f32 [B]  |
// | mt_sample           | logits and adjusted ones   | none                  | token s32 [B],    |
// |                     | f32 [B, V], settings       |                       | log prob f32 [B]  |
// |                     | f32 [B, 8 or more], keys   |                       |                   |
// |                     | u32 [B, 2]                 |                       |                   |
//
// A weight of mt_quantised_matmul whose attribute packed_i is 1 has its rows packed (packed.h).
// mt_dequantise: values as checkpoint's, to the last bit in f32 (but that a NaN of F16 may come out
// quiet); bf16 rounds to nearest even.
// Types: F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K.
// mt_quantised_matmul: x times each weight's transpose. x is rounded to 16 bits, 32 values having a
// scale of their own; products are summed as integers over 4 to 32 values, then in float32. A row
// of x with an infinity or NaN gives NaN. Types: the Q ones. Every weight is read once, however
// many rows x has. mt_matvec: x times each weight's transpose, in float32.
// mt_cache_attention: cache_attention.h. mt_greedy: greedy.h. mt_sample: sample.h.
// mt_rms_norm: norm.h.
#pragma once

#include "pjrt/client.h"

namespace mt::kernels {

// Registers the table above with the client's plugin; a second time does nothing. Thread-safe.
// Throws kDevice if the client isn't a CPU's or its plugin has no FFI.
void register_cpu_handlers(const pjrt::Client& client);

// Whether mt_quantised_matmul is worth its call for any number of rows of x, on this processor;
// else beyond some 16 rows decoding the weight first is faster.
bool multiplies_many_rows();

}  // namespace mt::kernels
