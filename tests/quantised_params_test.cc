// quantization= and save_quantized_params_path=: a small model's logits, and the real one's.
#include "serve/quantised_params.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "checkpoint/gguf.h"
#include "checkpoint/test_files.h"
#include "support/real_goldens.h"
#include "support/small_engine.h"

namespace mt::serve {
namespace {

using checkpoint::testing::message_of;
using checkpoint::testing::TempFolder;
using testing::Tokens;

const std::string kHf = MT_SOURCE_DIR "/tests/golden/hf";
const std::string kMaxText = MT_SOURCE_DIR "/tests/golden/maxtext/params.safetensors";

std::vector<std::string> words_of(const std::string& weights,
                                  const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{"base_emb_dim=64",
                                 "head_dim=16",
                                 "base_mlp_dim=128",
                                 "vocab_size=256",
                                 "query_pre_attn_scalar=16",
                                 "rope_linear_scaling_factor=1",
                                 "load_parameters_path=" + weights};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// The logits of a prompt and of tokens behind it.
std::vector<float> logits_of(const std::vector<std::string>& words) {
  testing::Small small({.slots = 1, .max_length = 24, .chunk = 16}, words);
  const Tokens text = testing::random_tokens(20, 4);
  Prefix prefix = small.engine->prefill(std::span(text).first(14), {});
  const auto first = prefix.logits.data<float>();
  std::vector<float> out(first.begin(), first.end());
  small.engine->insert(std::move(prefix), 0);
  for (size_t at = 14; at < text.size(); ++at) {
    small.engine->force(0, text[at]);
    small.engine->generate();
    const auto next = small.engine->logits().data<float>();
    out.insert(out.end(), next.begin(), next.end());
  }
  return out;
}

double relative_error(const std::vector<float>& x, const std::vector<float>& y) {
  EXPECT_EQ(x.size(), y.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += std::pow(static_cast<double>(x[i] - y[i]), 2);
    size += std::pow(static_cast<double>(x[i]), 2);
  }
  return std::sqrt(error / size);
}

TEST(QuantisedParams, SmallModelsStayNearAndTheirFilesAreTheSameToTheBit) {
  const TempFolder folder;
  const std::string file = folder / "saved.gguf";
  for (const std::string& path : {kHf, kMaxText}) {
    const std::vector<float> floats = logits_of(words_of(path));
    for (const std::string to : {"int8", "int4"}) {
      SCOPED_TRACE(path + " " + to);
      const std::vector<float> found = logits_of(words_of(path, {"quantization=" + to}));
      const double error = relative_error(floats, found);
      EXPECT_LT(error, to == "int8" ? 0.1 : 1.0);
      EXPECT_GT(error, to == "int8" ? 0.005 : 0.1);
      EXPECT_EQ(
          logits_of(words_of(path, {"quantization=" + to, "save_quantized_params_path=" + file})),
          found);
      EXPECT_EQ(logits_of(words_of(file)), found);
      // What the blocks mean, multiplied in float32.
      const double kernels =
          relative_error(logits_of(words_of(file, {"dequantize_weights=true"})), found);
      EXPECT_LT(kernels, 1e-3);
      std::printf("%s %s: %.4f from the floats', %.1e from float32 products\n", path.c_str(),
                  to.c_str(), error, kernels);
      const auto gguf = checkpoint::GgufFile::open(file);
      EXPECT_EQ(gguf->metadata("tokenizer.ggml.model"), nullptr);  // the run has none
      EXPECT_EQ(gguf->metadata("general.file_type")->as_int(), to == "int8" ? 7 : 2);
    }
  }
}

TEST(QuantisedParams, KeysThatDontGoTogetherAreRefused) {
  const TempFolder folder;
  const auto refusal = [](const std::vector<std::string>& words) {
    return message_of([&] { logits_of(words); });
  };
  EXPECT_EQ(refusal({"save_quantized_params_path=x.gguf"}),
            "save_quantized_params_path=x.gguf needs quantization=int8 or quantization=int4");
  EXPECT_EQ(refusal({"quantization=int8"}),
            "quantization=int8 needs load_parameters_path: random weights are not quantised");
  EXPECT_EQ(refusal(words_of(kHf, {"quantization=int4", "ici_tensor_parallelism=2"})),
            "quantization=int4: only one CPU device computes with quantised blocks; set "
            "hardware=cpu and no parallelism, or leave quantization out");
  EXPECT_EQ(refusal(words_of(kHf, {"quantization=int4", "save_quantized_params_path=x"})),
            "save_quantized_params_path=x: a GGUF file is written; give it a name that ends in "
            ".gguf");
  std::filesystem::create_directory(folder / "taken.gguf");
  EXPECT_EQ(refusal(words_of(kHf, {"quantization=int4",
                                   "save_quantized_params_path=" + (folder / "taken.gguf")})),
            "save_quantized_params_path: " + (folder / "taken.gguf: cannot be written: is a "
                                                       "directory"));
  // Without a device.
  const config::Config nowhere = testing::small_config(
      words_of(kHf, {"quantization=int4", "save_quantized_params_path=/proc/x.gguf"}));
  EXPECT_TRUE(message_of([&] {
                check_quantization_keys(nowhere);
              }).starts_with("save_quantized_params_path: /proc/x.gguf: cannot create: "));
  const std::string file = folder / "x.gguf";
  logits_of(words_of(kHf, {"quantization=int8", "save_quantized_params_path=" + file}));
  EXPECT_NE(refusal(words_of(file, {"quantization=int8"})).find("quantised already"),
            std::string::npos);
  EXPECT_EQ(refusal(words_of(file, {"quantization=int8", "dequantize_weights=true",
                                    "save_quantized_params_path=" + file})),
            "save_quantized_params_path=" + file +
                ": that is load_parameters_path; the weights would be lost");
  const auto config = mt::testing::config_of({"model_name=gemma3-270m", "quantization=int8"});
  EXPECT_EQ(message_of([&] { models::gemma3::make_model(config, mt::testing::partitioner_of()); }),
            "quantization=int8 isn't supported yet by maxtext.cpp but for decode: leave it empty");
}

// Of the 270M, whose blocks are decoded first: float32 is what transformers computed with.
TEST(QuantisedParams, RealWeightsInInt8ChooseTheSameTokens) {
  testing::RealGoldens golden;
  testing::run_goldens(golden, {"quantization=int8", "dequantize_weights=true"});
  std::printf("int8: %lld of %lld steps chose another token, the widest gap %.3f\n",
              static_cast<long long>(golden.different), static_cast<long long>(golden.steps),
              golden.widest_gap);
  EXPECT_LE(golden.different, golden.steps * 3 / 100);
  EXPECT_LT(golden.widest_gap, 0.1);
}

TEST(QuantisedParams, RealWeightsInInt4ChooseMostlyTheSameTokens) {
  testing::RealGoldens golden;
  testing::run_goldens(golden, {"quantization=int4", "dequantize_weights=true"});
  std::printf("int4: %lld of %lld steps chose another token, the widest gap %.3f\n",
              static_cast<long long>(golden.different), static_cast<long long>(golden.steps),
              golden.widest_gap);
  EXPECT_LE(golden.different, golden.steps / 4);
  EXPECT_GT(golden.different, 0);  // four bits are not eight
}

}  // namespace
}  // namespace mt::serve
