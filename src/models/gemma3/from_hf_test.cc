#include "models/gemma3/from_hf.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"

namespace mt::models::gemma3 {
namespace {

// The sizes of one small model, without any word on pattern or rope.
constexpr const char* kSizes =
    R"("model_type":"gemma3_text","num_hidden_layers":8,"hidden_size":64,"intermediate_size":128,)"
    R"("num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,"vocab_size":512,)"
    R"("sliding_window":4,"query_pre_attn_scalar":32)";

Gemma3Config parse(const std::string& rest) {
  return config_from_hf(Json::parse("{" + std::string(kSizes) + rest + "}"));
}

std::string error_of(const std::string& json) {
  try {
    config_from_hf(Json::parse(json));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

std::string error_with(const std::string& rest) {
  return error_of("{" + std::string(kSizes) + rest + "}");
}

constexpr const char* kTypes =
    R"("layer_types":["sliding_attention","sliding_attention","sliding_attention",)"
    R"("sliding_attention","sliding_attention","full_attention","sliding_attention",)"
    R"("sliding_attention"])";

// Five ways in which published files say the same model.
TEST(FromHf, FiveShapesOfOneModel) {
  const std::string scaling = R"(,"rope_scaling":{"rope_type":"linear","factor":8.0})";
  const std::string old_scaling = R"(,"rope_scaling":{"type":"linear","factor":8})";
  const std::string nested =
      R"(,"rope_parameters":{"full_attention":{"rope_type":"linear","factor":8,"rope_theta":1e6},)"
      R"("sliding_attention":{"rope_type":"default","rope_theta":10000}})";
  const std::string sizes = kSizes;
  const std::string shapes[] = {
      "{" + sizes + scaling + "}",
      "{" + sizes +
          R"(,"sliding_window_pattern":6,"rope_theta":1000000,"rope_local_base_freq":1e4)" +
          old_scaling + "}",
      "{" + sizes + R"(,"_sliding_window_pattern":6)" + scaling + "}",
      "{" + sizes + "," + kTypes + nested + R"(,"sliding_window_pattern":null})",
      R"({"model_type":"gemma3","vision_config":{},"text_config":{)" + sizes + "," + kTypes +
          nested + "}}"};
  for (const std::string& json : shapes) {
    const Gemma3Config c = config_from_hf(Json::parse(json));
    EXPECT_EQ(c.num_decoder_layers, 8) << json;
    EXPECT_EQ(c.emb_dim, 64);
    EXPECT_EQ(c.mlp_dim, 128);
    EXPECT_EQ(c.num_query_heads, 4);
    EXPECT_EQ(c.num_kv_heads, 2);
    EXPECT_EQ(c.head_dim, 32);
    EXPECT_EQ(c.vocab_size, 512);
    EXPECT_EQ(c.sliding_window_size, 4);
    EXPECT_EQ(c.query_pre_attn_scalar, 32);
    EXPECT_EQ(c.rope_max_timescale, 1e6) << json;
    EXPECT_EQ(c.local_rope_max_timescale, 1e4) << json;
    EXPECT_EQ(c.rope_linear_scaling_factor, 8) << json;
    EXPECT_EQ(c.normalization_layer_epsilon, 1e-6);
  }
}

TEST(FromHf, NestedRopeWinsOverFlat) {
  const Gemma3Config c = parse(
      R"(,"rope_theta":5,"rope_local_base_freq":6,"rope_scaling":{"rope_type":"linear","factor":7},)"
      R"("rope_parameters":{"full_attention":{"rope_type":"default","rope_theta":2e6},)"
      R"("sliding_attention":{"rope_theta":20000}})");
  EXPECT_EQ(c.rope_max_timescale, 2e6);
  EXPECT_EQ(c.local_rope_max_timescale, 2e4);
  EXPECT_EQ(c.rope_linear_scaling_factor, 1);
}

TEST(FromHf, LayerTypesWinOverPattern) {
  EXPECT_NO_THROW(parse(std::string(R"(,"sliding_window_pattern":2,)") + kTypes));
}

// The 4B's published file leaves out what equals the class's defaults.
TEST(FromHf, SparseMultimodalFile) {
  const Gemma3Config c = config_from_hf(Json::parse(
      R"({"model_type":"gemma3","text_config":{"hidden_size":2560,"intermediate_size":10240,)"
      R"("model_type":"gemma3_text","num_hidden_layers":34,"rope_scaling":{"factor":8.0,)"
      R"("rope_type":"linear"},"sliding_window":1024},"vision_config":{"hidden_size":1152}})"));
  EXPECT_EQ(c.vocab_size, 262'144);
  EXPECT_EQ(c.parameter_count(), 3'880'099'328);
  EXPECT_EQ(c.query_pre_attn_scalar, 256);
}

TEST(FromHf, GoldenFile) {
  const Gemma3Config c =
      config_from_hf(Json::parse(read_file(MT_SOURCE_DIR "/tests/golden/hf/config.json")));
  EXPECT_EQ(c.num_decoder_layers, 8);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.vocab_size, 256);
  EXPECT_EQ(c.query_pre_attn_scalar, 16);
}

TEST(FromHf, BothGelusAreTanh) {
  EXPECT_NO_THROW(parse(R"(,"hidden_activation":"gelu")"));
  EXPECT_NO_THROW(parse(R"(,"hidden_activation":"gelu_pytorch_tanh")"));
  EXPECT_EQ(error_with(R"(,"hidden_activation":"silu")"),
            "config.json: hidden_activation \"silu\" is not Gemma 3's gelu");
}

// Fewer layers than the pattern: there is no global one, and any longer pattern says the same.
TEST(FromHf, ShallowModels) {
  for (const char* layers : {"1", "2", "5"}) {
    const std::string json =
        std::string(R"({"model_type":"gemma3_text","hidden_size":8,"intermediate_size":8,)") +
        R"("sliding_window_pattern":9,"num_hidden_layers":)" + layers + "}";
    EXPECT_EQ(config_from_hf(Json::parse(json)).scanned_blocks(), 0);
  }
}

TEST(FromHf, RefusesWhatItCannotBe) {
  EXPECT_EQ(error_with(R"(,"rope_scaling":{"rope_type":"yarn","factor":2})"),
            "config.json: rope_scaling: rope_type \"yarn\" is not supported, only default and "
            "linear");
  EXPECT_NE(error_with(R"(,"rope_parameters":{"full_attention":{"rope_type":"llama3"}})")
                .find("\"llama3\""),
            std::string::npos);
  EXPECT_NE(error_with(R"(,"rope_parameters":{"full_attention":{},"sliding_attention":)"
                       R"({"rope_type":"linear","factor":2}})")
                .find("sliding layers"),
            std::string::npos);
  EXPECT_EQ(error_with(R"(,"sliding_window_pattern":4)"),
            "config.json: sliding_window_pattern makes layer 3 global, but every 6th layer and no "
            "other must be global");
  EXPECT_NE(error_with(R"(,"layer_types":["full_attention"])").find("1 entries for 8 layers"),
            std::string::npos);
  EXPECT_NE(error_with(R"(,"layer_types":["x","x","x","x","x","x","x","x"])").find("is \"x\""),
            std::string::npos);
  EXPECT_NE(error_with(R"(,"attention_bias":true)").find("attention_bias is set"),
            std::string::npos);
  EXPECT_NE(error_with(R"(,"final_logit_softcapping":30.0)").find("final_logit_softcapping"),
            std::string::npos);
  EXPECT_EQ(error_of(R"({"model_type":"llama"})"),
            "config.json: model_type \"llama\", expected gemma3 or gemma3_text");
  EXPECT_EQ(error_of("[]"), "config.json: model_type \"\", expected gemma3 or gemma3_text");
  EXPECT_EQ(error_of(R"({"model_type":"gemma3_text"})"),
            "config.json: missing key \"num_hidden_layers\"");
  EXPECT_NE(error_of(R"({"model_type":"gemma3_text","num_hidden_layers":"8"})")
                .find("num_hidden_layers: expected an integer"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"model_type":"gemma3_text","num_hidden_layers":-1,"hidden_size":8,)"
                     R"("intermediate_size":8})")
                .find("number of layers is -1"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"model_type":"gemma3_text","num_hidden_layers":1,"hidden_size":8,)"
                     R"("intermediate_size":8,"num_key_value_heads":3})")
                .find("don't divide"),
            std::string::npos);
}

}  // namespace
}  // namespace mt::models::gemma3
