#include "models/gemma3/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/test_files.h"
#include "models/gemma3/weight_names.h"

namespace mt::models::gemma3 {
namespace {

using checkpoint::testing::GgufBuilder;
using checkpoint::testing::message_of;
using checkpoint::testing::TempFolder;

using Named = std::vector<std::pair<std::string, Tensor>>;

Gemma3Config tiny() {
  Gemma3Config c;
  c.num_decoder_layers = 8;
  c.emb_dim = 8;
  c.num_query_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 6;
  c.mlp_dim = 20;
  c.vocab_size = 10;
  c.sliding_window_size = 4;
  return c;
}

int64_t inputs_of(const NamedShape& weight) {
  const auto logical = parse_logical_name(weight.name);
  int64_t n = 1;
  for (int i = 0; i < logical->leaf->inputs; ++i) n *= weight.shape[static_cast<size_t>(i)];
  return n;
}

// One model's weights in MaxText's convention, and its files in every other.
class Weights : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 0.5F);
    for (const NamedShape& weight : weight_shapes(config)) {
      Tensor t(DType::kF32, weight.shape);
      for (float& x : t.mutable_data<float>()) x = normal(random);
      if (weight.name.ends_with("scale")) {
        for (float& x : t.mutable_data<float>()) x += 1;
      }
      truth.emplace(weight.name, t);
    }
  }

  // As Hugging Face stores it (rows of `extra` zeros behind the table); norms minus `norm_shift`.
  Tensor foreign(const NamedShape& weight, float norm_shift, int64_t extra = 0) const {
    const Tensor& t = truth.at(weight.name);
    const auto in = t.data<float>();
    if (weight.name.ends_with("embedding")) {
      Tensor out(DType::kF32, {weight.shape[0] + extra, weight.shape[1]});
      const float scale = std::sqrt(static_cast<float>(config.emb_dim));
      for (size_t i = 0; i < in.size(); ++i) out.mutable_data<float>()[i] = in[i] / scale;
      return out;
    }
    if (weight.name.ends_with("scale")) {
      Tensor out(DType::kF32, weight.shape);
      for (size_t i = 0; i < in.size(); ++i) out.mutable_data<float>()[i] = in[i] - norm_shift;
      return out;
    }
    const int64_t inputs = inputs_of(weight);
    return t.reshape({inputs, t.size() / inputs}).transpose({1, 0});
  }

  static std::string foreign_name(const std::string& name, const std::string& prefix, bool gguf) {
    const auto logical = parse_logical_name(name);
    if (!logical->leaf) {
      if (logical->form == Form::kEmbedding) {
        return gguf ? "token_embd.weight" : prefix + "embed_tokens.weight";
      }
      return gguf ? "output_norm.weight" : prefix + "norm.weight";
    }
    return gguf ? fmt::format("blk.{}.{}.weight", logical->layer, logical->leaf->gguf)
                : fmt::format("{}layers.{}.{}.weight", prefix, logical->layer, logical->leaf->hf);
  }

  Named hf(const std::string& prefix = "model.", int64_t extra = 0) const {
    Named out;
    for (const NamedShape& weight : weight_shapes(config)) {
      out.emplace_back(foreign_name(weight.name, prefix, false), foreign(weight, 1, extra));
    }
    return out;
  }

  std::string write(const Named& tensors) const {
    const std::string path = folder / "model.safetensors";
    checkpoint::write_safetensors(path, tensors);
    return path;
  }

  void expect_equal(const WeightSource& source, float tolerance) const {
    source.check(weight_shapes(config));
    for (const NamedShape& weight : weight_shapes(config)) {
      const Tensor found = source.read(weight.name, weight.shape, DType::kF32);
      ASSERT_EQ(found.shape(), weight.shape);
      const auto x = found.data<float>(), y = truth.at(weight.name).data<float>();
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_NEAR(x[i], y[i], tolerance) << weight.name << " element " << i;
      }
    }
  }

  std::string check_error(const Named& tensors) const {
    const auto source = WeightSource::open(write(tensors));
    return message_of([&] { source->check(weight_shapes(config)); });
  }

  Gemma3Config config = tiny();
  std::map<std::string, Tensor> truth;
  TempFolder folder;
};

constexpr float kRounding = 1e-6F;  // x / sqrt(D) * sqrt(D) and (x - 1) + 1 in float32

TEST_F(Weights, HuggingFaceUnderEachPrefix) {
  for (const char* prefix : {"model.", "language_model.model.", "model.language_model."}) {
    Named tensors = hf(prefix, 64);  // and the image placeholders' rows, and a vision tensor
    tensors.emplace_back("vision_tower.vision_model.embeddings.patch_embedding.weight",
                         Tensor(DType::kF32, {3}));
    tensors.emplace_back("multi_modal_projector.mm_input_projection_weight",
                         Tensor(DType::kF32, {3}));
    const auto source = WeightSource::open(write(tensors));
    EXPECT_EQ(source->kind(), "Hugging Face");
    EXPECT_FALSE(source->config().has_value());
    expect_equal(*source, kRounding);
  }
}

// The same norms, stored as w in one and 1 + w in the other.
TEST_F(Weights, GgufStoresWholeNorms) {
  GgufBuilder b;
  b.text("general.architecture", "gemma3").u32("gemma3.block_count", 8);
  b.u32("gemma3.embedding_length", 8).u32("gemma3.feed_forward_length", 20);
  b.u32("gemma3.attention.head_count", 4).u32("gemma3.attention.head_count_kv", 2);
  b.u32("gemma3.attention.key_length", 6).u32("gemma3.attention.sliding_window", 4);
  for (const NamedShape& weight : weight_shapes(config)) {
    const Tensor t = foreign(weight, 0);
    std::vector<uint64_t> dimensions(t.shape().rbegin(), t.shape().rend());
    const auto values = t.data<float>();
    b.floats(foreign_name(weight.name, "", true), dimensions, {values.begin(), values.end()});
  }
  write_file(folder / "x.gguf", b.build());
  const auto source = WeightSource::open(folder / "x.gguf");
  EXPECT_EQ(source->kind(), "GGUF");
  ASSERT_TRUE(source->config().has_value());
  EXPECT_EQ(source->config()->parameter_count(), config.parameter_count());
  expect_equal(*source, kRounding);
}

TEST_F(Weights, MaxTextUnscanned) {
  for (const char* prefix : {"", "params."}) {
    Named tensors;
    for (const auto& [name, tensor] : truth) {
      std::string dotted = prefix + name;
      std::replace(dotted.begin(), dotted.end(), '/', '.');
      tensors.emplace_back(dotted, tensor);
    }
    const auto source = WeightSource::open(write(tensors));
    EXPECT_EQ(source->kind(), "MaxText");
    expect_equal(*source, 0);
  }
}

// Stacks layers j, j + 6, ... on axis 1; the leftover ones stay single.
Named scanned(const Gemma3Config& config, const std::map<std::string, Tensor>& truth) {
  const int64_t blocks = config.scanned_blocks();
  Named out;
  for (const auto& [name, tensor] : truth) {
    const auto logical = parse_logical_name(name);
    std::string to = name;
    Tensor value = tensor;
    if (logical->layer >= blocks * kPattern) {
      to = fmt::format("decoder/layers_remainder/layers_{}/{}", logical->layer - blocks * kPattern,
                       logical->leaf->maxtext);
    } else if (logical->layer >= kPattern) {
      continue;
    } else if (logical->layer >= 0) {
      to = fmt::format("decoder/layers/layers_{}/{}", logical->layer, logical->leaf->maxtext);
      Shape shape = tensor.shape();
      shape.insert(shape.begin() + 1, blocks);
      value = Tensor(DType::kF32, shape);
      const size_t rows = static_cast<size_t>(shape[0]);
      const size_t row = static_cast<size_t>(tensor.size()) / rows;
      for (size_t b = 0; b < static_cast<size_t>(blocks); ++b) {
        const auto layer = truth
                               .at(layer_name(logical->layer + static_cast<int64_t>(b) * kPattern,
                                              logical->leaf->maxtext))
                               .data<float>();
        for (size_t i = 0; i < rows * row; ++i) {
          value.mutable_data<float>()[(i / row * static_cast<size_t>(blocks) + b) * row + i % row] =
              layer[i];
        }
      }
    }
    std::replace(to.begin(), to.end(), '/', '.');
    out.emplace_back(to, value);
  }
  return out;
}

TEST_F(Weights, MaxTextScannedAtManyDepths) {
  for (const int64_t layers : {1, 2, 5, 6, 7, 8, 12, 13, 34}) {
    config.num_decoder_layers = layers;
    truth.clear();
    SetUp();
    const auto source = WeightSource::open(write(scanned(config, truth)));
    expect_equal(*source, 0);
  }
}

TEST_F(Weights, ScannedDepthIsChecked) {
  config.num_decoder_layers = 14;
  truth.clear();
  SetUp();
  const Named two_blocks = scanned(config, truth);
  config.num_decoder_layers = 8;  // one block and two layers: same names
  EXPECT_NE(
      check_error(two_blocks)
          .find("decoder.layers.layers_0.mlp.wi_0.kernel expected [8, 1, 20] found [8, 2, 20]"),
      std::string::npos)
      << check_error(two_blocks);
}

TEST_F(Weights, MaxTextGolden) {
  const auto source = WeightSource::open(MT_SOURCE_DIR "/tests/golden/maxtext/params.safetensors");
  Gemma3Config c = tiny();
  c.emb_dim = 64;
  c.head_dim = 16;
  c.mlp_dim = 128;
  c.vocab_size = 256;
  source->check(weight_shapes(c));
  const auto reader = checkpoint::open(MT_SOURCE_DIR "/tests/golden/maxtext/params.safetensors");
  const Tensor stacked = reader->read("decoder.layers.layers_3.self_attention.out.kernel");
  const Tensor layer =
      source->read("decoder/layers_3/self_attention/out/kernel", {4, 16, 64}, DType::kF32);
  EXPECT_TRUE(std::ranges::equal(stacked.bytes(), layer.bytes()));
  const Tensor last = reader->read("decoder.layers_remainder.layers_1.mlp.wo.kernel");
  EXPECT_TRUE(std::ranges::equal(
      last.bytes(),
      source->read("decoder/layers_7/mlp/wo/kernel", {128, 64}, DType::kF32).bytes()));
}

TEST_F(Weights, HuggingFaceGolden) {
  const auto source = WeightSource::open(MT_SOURCE_DIR "/tests/golden/hf");
  ASSERT_TRUE(source->config().has_value());
  source->check(weight_shapes(*source->config()));
  const auto reader = checkpoint::open(MT_SOURCE_DIR "/tests/golden/hf/model.safetensors");
  const Tensor q = reader->read("model.layers.2.self_attn.q_proj.weight");  // [N*H, D]
  const Tensor ours =
      source->read("decoder/layers_2/self_attention/query/kernel", {64, 4, 16}, DType::kF32);
  EXPECT_EQ(ours.data<float>()[(5 * 4 + 3) * 16 + 7], q.data<float>()[(3 * 16 + 7) * 64 + 5]);
  const Tensor o = reader->read("model.layers.2.self_attn.o_proj.weight");  // [D, N*H]
  const Tensor out =
      source->read("decoder/layers_2/self_attention/out/kernel", {4, 16, 64}, DType::kF32);
  EXPECT_EQ(out.data<float>()[(3 * 16 + 7) * 64 + 5], o.data<float>()[5 * 64 + 3 * 16 + 7]);
  const float embed = reader->read("model.embed_tokens.weight").data<float>()[77];
  EXPECT_EQ(source->read("token_embedder/embedding", {256, 64}, DType::kF32).data<float>()[77],
            embed * 8);
}

// sqrt(2560) = 50.596...; in bfloat16 it is 50.5.
TEST_F(Weights, EmbeddingScaleIsRoundedToTheActivationType) {
  checkpoint::write_safetensors(
      folder / "x", {{"model.embed_tokens.weight",
                      Tensor::of<float>(DType::kF32, {1, 2560}, std::vector<float>(2560, 1))}});
  const auto scale = [&](DType activation, DType want) {
    return WeightSource::open(folder / "x", activation)
        ->read("token_embedder/embedding", {1, 2560}, want);
  };
  EXPECT_FLOAT_EQ(scale(DType::kF32, DType::kF32).data<float>()[0], 50.59644F);
  EXPECT_EQ(scale(DType::kBF16, DType::kF32).data<float>()[0], 50.5F);
  EXPECT_EQ(scale(DType::kBF16, DType::kBF16).data<BFloat16>()[0].to_float(), 50.5F);
  EXPECT_EQ(scale(DType::kBF16, DType::kF64).data<double>()[9], 50.5);
}

TEST_F(Weights, RoundsOnceToTheWantedType) {
  const auto source = WeightSource::open(write(hf()));
  const NamedShape w{"decoder/layers_1/mlp/wo/kernel", {20, 8}};
  const Tensor f = source->read(w.name, w.shape, DType::kF32);
  for (const DType want : {DType::kBF16, DType::kF16, DType::kF64}) {
    EXPECT_TRUE(
        std::ranges::equal(source->read(w.name, w.shape, want).bytes(), f.cast(want).bytes()));
  }
}

TEST_F(Weights, EverythingWrongIsListedAtOnce) {
  Named tensors = hf();
  std::erase_if(tensors,
                [](const auto& t) { return t.first.find("layers.3.mlp") != std::string::npos; });
  tensors.emplace_back("model.layers.8.mlp.up_proj.weight", Tensor(DType::kF32, {20, 8}));
  tensors.emplace_back("model.something", Tensor(DType::kF32, {1}));
  tensors.emplace_back("language_model.model.norm.weight", Tensor(DType::kF32, {8}));
  for (auto& [name, tensor] : tensors) {
    if (name == "model.layers.0.self_attn.k_proj.weight") tensor = Tensor(DType::kF32, {24, 8});
    if (name == "model.layers.1.self_attn.q_norm.weight") tensor = Tensor(DType::kS32, {6});
  }
  const std::string error = check_error(tensors);
  for (const char* part :
       {"the weights don't fit the model: 3 missing: decoder/layers_3/mlp/wi_0/kernel, "
        "decoder/layers_3/mlp/wi_1/kernel, decoder/layers_3/mlp/wo/kernel; ",
        "1 there twice: model.norm.weight and language_model.model.norm.weight; ",
        "2 unexpected: model.layers.8.mlp.up_proj.weight, model.something; ",
        "1 of another shape: model.layers.0.self_attn.k_proj.weight expected [12, 8] found [24, "
        "8]; ",
        "1 wrong otherwise: model.layers.1.self_attn.q_norm.weight is I32, expected a float "
        "type"}) {
    EXPECT_NE(error.find(part), std::string::npos) << part << "\n" << error;
  }
  EXPECT_NE(
      message_of([&] {
        WeightSource::open(folder / "model.safetensors")
            ->read("decoder/layers_0/self_attention/key/kernel", {8, 2, 6}, DType::kF32);
      })
          .find("model.layers.0.self_attn.k_proj.weight (for decoder/layers_0/self_attention/key/"
                "kernel): expected [12, 8], found [24, 8]"),
      std::string::npos);
}

TEST_F(Weights, LongListsAreCut) {
  EXPECT_NE(check_error({{"model.norm.weight", Tensor(DType::kF32, {8})}}).find(", and 85 more"),
            std::string::npos);
}

TEST_F(Weights, VocabularyRows) {
  EXPECT_EQ(check_error(hf("model.", 64)), "");
  EXPECT_NE(check_error(hf("model.", 65)).find("expected [10, 8] found [75, 8]"),
            std::string::npos);
}

TEST_F(Weights, HeadMustEqualTheTable) {
  Named tensors = hf();
  Tensor head = tensors[0].second;
  tensors.emplace_back("lm_head.weight", head);
  EXPECT_EQ(check_error(tensors), "");
  Tensor other = Tensor::of<float>(DType::kF32, head.shape(),
                                   {head.data<float>().begin(), head.data<float>().end()});
  other.mutable_data<float>()[79] += 1;
  tensors.back().second = other;
  EXPECT_NE(check_error(tensors).find("lm_head.weight differs from model.embed_tokens.weight"),
            std::string::npos);
}

TEST_F(Weights, BrokenConfigBesideIsNamed) {
  write(hf());
  write_file(folder / "config.json", "{\"model_type\":");
  EXPECT_NE(message_of([&] { WeightSource::open(folder.path()); }).find("invalid JSON"),
            std::string::npos);
  write_file(folder / "config.json", R"({"model_type":"qwen3"})");
  EXPECT_NE(message_of([&] { WeightSource::open(folder.path()); }).find("\"qwen3\""),
            std::string::npos);
}

// The run's numbers against the file's: one line that names file, key and both values.
TEST(SourceNumbers, AContradictionIsNamed) {
  const TempFolder folder;
  GgufBuilder b;
  b.text("general.architecture", "gemma3").u32("gemma3.block_count", 8);
  b.u32("gemma3.embedding_length", 8).u32("gemma3.feed_forward_length", 20);
  b.u32("gemma3.attention.head_count", 4).u32("gemma3.attention.head_count_kv", 2);
  b.u32("gemma3.attention.key_length", 6).u32("gemma3.attention.sliding_window", 4);
  b.f32("gemma3.attention.layer_norm_rms_epsilon", 1e-6F).f32("gemma3.rope.freq_base", 1e6F);
  b.floats("token_embd.weight", {8, 10}, std::vector<float>(80));
  write_file(folder / "x.gguf", b.build());
  const auto source = WeightSource::open(folder / "x.gguf");
  const auto with = [&](auto change) {
    Gemma3Config run = tiny();
    change(run);
    return message_of([&] { check_source_numbers(source->numbers(), run); });
  };
  EXPECT_EQ(with([](Gemma3Config&) {}), "");
  EXPECT_EQ(with([](Gemma3Config& c) { c.sliding_window_size = 5; }),
            folder / "x.gguf" +
                ": gemma3.attention.sliding_window is 4, but the run has sliding_window_size=5: "
                "they don't belong together");
  EXPECT_NE(with([](Gemma3Config& c) { c.normalization_layer_epsilon = 1e-5; })
                .find("layer_norm_rms_epsilon is 1e-06, but the run has "
                      "normalization_layer_epsilon=1e-05"),
            std::string::npos);
  EXPECT_NE(with([](Gemma3Config& c) { c.rope_max_timescale = 1e4; }).find("gemma3.rope.freq_base"),
            std::string::npos);
  // Numbers that no model has are named in the same way.
  for (const float theta : {0.0F, -1.0F, INFINITY, NAN}) {
    GgufBuilder bad = b;
    bad.f32("gemma3.rope.freq_base_swa", theta);
    write_file(folder / "bad.gguf", bad.build());
    const auto numbers = WeightSource::open(folder / "bad.gguf")->numbers();
    EXPECT_EQ(message_of([&] { check_source_numbers(numbers, tiny()); }),
              fmt::format("{}: gemma3.rope.freq_base_swa is {}, but the run has "
                          "local_rope_max_timescale=10000: they don't belong together",
                          folder / "bad.gguf", theta));
  }
  // Not in the file, so not against it.
  EXPECT_EQ(with([](Gemma3Config& c) { c.local_rope_max_timescale = 5; }), "");
  EXPECT_EQ(with([](Gemma3Config& c) { c.query_pre_attn_scalar = 5; }), "");
}

TEST(SourceNumbers, HuggingFaceStatesAllOfThem) {
  const auto source = WeightSource::open(MT_SOURCE_DIR "/tests/golden/hf");
  const Gemma3Config same = *source->config();
  const auto with = [&](auto change) {
    Gemma3Config run = same;
    change(run);
    return message_of([&] { check_source_numbers(source->numbers(), run); });
  };
  EXPECT_EQ(with([](Gemma3Config&) {}), "");
  for (const auto& [change, words] :
       std::vector<std::pair<std::function<void(Gemma3Config&)>, std::string>>{
           {[](Gemma3Config& c) { c.sliding_window_size = 9; },
            "sliding_window is 8, but the run has sliding_window_size=9"},
           {[](Gemma3Config& c) { c.num_decoder_layers = 19; }, "num_hidden_layers is"},
           {[](Gemma3Config& c) { c.emb_dim = 8; }, "hidden_size is"},
           {[](Gemma3Config& c) { c.mlp_dim = 8; }, "intermediate_size is"},
           {[](Gemma3Config& c) { c.num_query_heads = 16; }, "num_attention_heads is"},
           {[](Gemma3Config& c) { c.num_kv_heads = 16; }, "num_key_value_heads is"},
           {[](Gemma3Config& c) { c.head_dim = 128; }, "head_dim is"},
           {[](Gemma3Config& c) { c.rope_max_timescale = 1e5; },
            "rope_theta is 1000000, but the run has rope_max_timescale=100000"},
           {[](Gemma3Config& c) { c.local_rope_max_timescale = 1e5; },
            "rope_theta of sliding_attention is 10000, but"},
           {[](Gemma3Config& c) { c.rope_linear_scaling_factor = 8; }, "factor is 1, but"},
           {[](Gemma3Config& c) { c.query_pre_attn_scalar = 17; }, "scalar is 16, but"},
           {[](Gemma3Config& c) { c.normalization_layer_epsilon = 2e-6; }, "rms_norm_eps is"}}) {
    EXPECT_NE(with(change).find("tests/golden/hf/config.json: "), std::string::npos);
    EXPECT_NE(with(change).find(words), std::string::npos) << with(change);
  }
}

// Gemma 3 270M: every tensor is there; a few values against the gguf Python package 0.19.0.
TEST(RealWeights, Gguf) {
  const auto source = WeightSource::open(MT_DEPS "/weights/gemma-3-270m-Q4_K_M.gguf");
  ASSERT_TRUE(source->config().has_value());
  source->check(weight_shapes(*source->config()));
  const Tensor norm = source->read("decoder/decoder_norm/scale", {640}, DType::kF32);
  EXPECT_EQ(norm.data<float>()[0], 7.125F);
  EXPECT_EQ(norm.data<float>()[639], 21.625F);
  const Tensor out =
      source->read("decoder/layers_0/self_attention/out/kernel", {4, 256, 640}, DType::kF32);
  EXPECT_EQ(out.data<float>()[0], -0.015705108642578125F);
  EXPECT_EQ(out.data<float>()[1000 * 640], 0.023328781127929688F);
  EXPECT_EQ(out.data<float>()[out.size() - 1], -0.011407613754272461F);
  const Tensor table = source->read("token_embedder/embedding", {262144, 640}, DType::kBF16);
  const float expected = -0.007244110107421875F * std::sqrt(640.0F);
  EXPECT_EQ(table.data<BFloat16>()[0].bits, BFloat16::from_float(expected).bits);
}

}  // namespace
}  // namespace mt::models::gemma3
