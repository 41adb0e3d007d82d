#include "models/gemma3/from_gguf.h"

#include <gtest/gtest.h>

#include "checkpoint/test_files.h"

namespace mt::models::gemma3 {
namespace {

using checkpoint::ByteSource;
using checkpoint::GgufFile;
using checkpoint::testing::as_span;
using checkpoint::testing::ByteWriter;
using checkpoint::testing::GgufBuilder;
using checkpoint::testing::message_of;

GgufBuilder small() {
  GgufBuilder b;
  b.text("general.architecture", "gemma3").u32("gemma3.block_count", 8);
  b.u32("gemma3.embedding_length", 8).u32("gemma3.feed_forward_length", 16);
  b.u32("gemma3.attention.head_count", 4).u32("gemma3.attention.head_count_kv", 2);
  b.u32("gemma3.attention.key_length", 6).u32("gemma3.attention.sliding_window", 4);
  b.floats("token_embd.weight", {8, 3}, std::vector<float>(24));
  return b;
}

Gemma3Config parse(const GgufBuilder& builder) {
  const std::string bytes = builder.build();
  return config_from_gguf(*GgufFile::open(ByteSource::memory(as_span(bytes), "f")));
}

std::string error_of(const GgufBuilder& builder) {
  return message_of([&] { parse(builder); });
}

TEST(FromGguf, AbsentKeysTakeDefaults) {
  const Gemma3Config c = parse(small());
  EXPECT_EQ(c.num_decoder_layers, 8);
  EXPECT_EQ(c.emb_dim, 8);
  EXPECT_EQ(c.mlp_dim, 16);
  EXPECT_EQ(c.num_query_heads, 4);
  EXPECT_EQ(c.num_kv_heads, 2);
  EXPECT_EQ(c.head_dim, 6);
  EXPECT_EQ(c.vocab_size, 3);
  EXPECT_EQ(c.sliding_window_size, 4);
  EXPECT_EQ(c.query_pre_attn_scalar, 6);
  EXPECT_EQ(c.rope_max_timescale, 1e6);
  EXPECT_EQ(c.local_rope_max_timescale, 1e4);
  EXPECT_EQ(c.rope_linear_scaling_factor, 1);
  EXPECT_EQ(c.normalization_layer_epsilon, 1e-6);
}

TEST(FromGguf, KeysAreRead) {
  GgufBuilder b = small();
  b.f32("gemma3.rope.freq_base", 2e6F).f32("gemma3.attention.layer_norm_rms_epsilon", 1e-5F);
  b.text("gemma3.rope.scaling.type", "linear").f32("gemma3.rope.scaling.factor", 8);
  b.u32("gemma3.attention.sliding_window_pattern", 6);
  const Gemma3Config c = parse(b);
  EXPECT_EQ(c.rope_max_timescale, 2e6);
  EXPECT_EQ(c.normalization_layer_epsilon, 1e-5);  // the double 1e-5, not float32's neighbour
  EXPECT_EQ(c.rope_linear_scaling_factor, 8);
}

TEST(FromGguf, RealFile) {
  const auto file = GgufFile::open(MT_DEPS "/weights/gemma-3-270m-Q4_K_M.gguf");
  const Gemma3Config c = config_from_gguf(*file);
  EXPECT_EQ(c.parameter_count(), 268'098'176);
  EXPECT_EQ(c.sliding_window_size, 512);
  EXPECT_EQ(c.query_pre_attn_scalar, 256);
  EXPECT_EQ(c.rope_max_timescale, 1e6);
}

TEST(FromGguf, The27bScalesByEmbeddingPerHead) {
  GgufBuilder b;
  b.text("general.architecture", "gemma3").u32("gemma3.block_count", 62);
  b.u32("gemma3.embedding_length", 5376).u32("gemma3.feed_forward_length", 21504);
  b.u32("gemma3.attention.head_count", 32).u32("gemma3.attention.head_count_kv", 16);
  b.u32("gemma3.attention.key_length", 128).u32("gemma3.attention.sliding_window", 1024);
  b.floats("token_embd.weight", {5376, 1}, std::vector<float>(5376));
  EXPECT_EQ(parse(b).query_pre_attn_scalar, 168);
}

TEST(FromGguf, RefusesWhatItCannotBe) {
  GgufBuilder llama;
  llama.text("general.architecture", "llama");
  EXPECT_EQ(error_of(llama), "f: general.architecture is \"llama\", expected \"gemma3\"");
  EXPECT_EQ(error_of(GgufBuilder()), "f: general.architecture is missing, expected \"gemma3\"");
  GgufBuilder bare;
  bare.text("general.architecture", "gemma3");
  EXPECT_EQ(error_of(bare), "f: gemma3.block_count: missing");
  EXPECT_EQ(error_of(small().text("gemma3.rope.scaling.type", "yarn")),
            "f: gemma3.rope.scaling.type: \"yarn\" is not supported, only none and linear");
  EXPECT_EQ(error_of(small().u32("gemma3.attention.value_length", 5)),
            "f: gemma3.attention.value_length: differs from attention.key_length");
  EXPECT_EQ(error_of(small().text("gemma3.rope.freq_base", "x")),
            "f: gemma3.rope.freq_base: expected a number, found a string");
  EXPECT_NE(
      error_of(small().u32("gemma3.attention.sliding_window_pattern", 4)).find("layer 3 is global"),
      std::string::npos);
  ByteWriter all_sliding;
  all_sliding.number(uint32_t{7}).number(uint64_t{8});
  for (int i = 0; i < 8; ++i) all_sliding.number(uint8_t{1});
  EXPECT_NE(error_of(small().key("gemma3.attention.sliding_window_pattern", 9, all_sliding.bytes))
                .find("layer 5 is sliding"),
            std::string::npos);
}

}  // namespace
}  // namespace mt::models::gemma3
