// A tiny checkpoint that Hugging Face transformers wrote (tests/golden/hf), read and run here: its
// logits, greedy tokens and loss; renamed tensors and other forms of config.json.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/reader.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/test_files.h"
#include "models/gemma3/weights.h"
#include "support/small_engine.h"
#include "support/small_model.h"

namespace mt {
namespace {

using checkpoint::testing::message_of;
using checkpoint::testing::TempFolder;
using models::gemma3::Gemma3Model;
using models::gemma3::WeightSource;
using testing::client;

const std::string kFolder = MT_SOURCE_DIR "/tests/golden/hf";

struct Loaded {
  explicit Loaded(const std::string& folder)
      : source(WeightSource::open(folder)),
        model(*source->config(), testing::small_options(), testing::partitioner_of()) {
    models::gemma3::load_parameters(model, *source, client());
  }
  Tensor logits(const Tensor& ids, const Tensor& segments, pjrt::CompileCache* cache = nullptr) {
    const int64_t rows = ids.shape()[0], length = ids.shape()[1];
    if (!program) {
      program = std::make_unique<nnx::Compiled>(
          train::trace_logits(model, rows, length)->lower().compile(client(), cache));
    }
    Tensor positions(DType::kS32, ids.shape());
    for (int64_t i = 0; i < rows * length; ++i) {
      positions.mutable_data<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(i % length);
    }
    return (*program)({ids, positions, segments})[0].to_host();
  }
  std::unique_ptr<WeightSource> source;
  Gemma3Model model;
  std::unique_ptr<nnx::Compiled> program;
};

Tensor ones(const Shape& shape) {
  Tensor t(DType::kS32, shape);
  for (int32_t& x : t.mutable_data<int32_t>()) x = 1;
  return t;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  double worst = 0;
  for (size_t i = 0; i < static_cast<size_t>(a.size()); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(a.data<float>()[i]) -
                                     static_cast<double>(b.data<float>()[i])));
  }
  return worst;
}

TEST(HuggingFace, Logits) {
  const auto golden = checkpoint::open(kFolder + "/golden.safetensors");
  const Tensor ids = golden->read("input_ids").cast(DType::kS32);
  Loaded loaded(kFolder);
  const Tensor mine = loaded.logits(ids, ones(ids.shape()));
  EXPECT_LE(largest_difference(mine, golden->read("logits").cast(DType::kF32)), 1e-4);
}

TEST(HuggingFace, LossOfShiftedTokens) {
  const auto golden = checkpoint::open(kFolder + "/golden.safetensors");
  const Json json = Json::parse(read_file(kFolder + "/golden.json"));
  const Tensor ids = golden->read("input_ids").cast(DType::kS32);
  const int64_t rows = ids.shape()[0], length = ids.shape()[1];
  std::vector<Tensor> batch = testing::random_batch(rows, length, 256);
  batch[0] = ids;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < length; ++i) {
      const auto at = static_cast<size_t>(r * length + i);
      const bool last = i + 1 == length;
      batch[1].mutable_data<int32_t>()[at] = last ? 0 : ids.data<int32_t>()[at + 1];
      batch[4].mutable_data<int32_t>()[at] = last ? 0 : 1;
    }
  }
  Loaded loaded(kFolder);
  auto program = train::trace_token_losses(loaded.model, testing::step_options(rows, length))
                     ->lower()
                     .compile(client());
  const Tensor losses = program(batch)[0].to_host();
  double sum = 0;
  for (const float x : losses.data<float>()) sum += static_cast<double>(x);
  EXPECT_NEAR(sum / static_cast<double>(rows * (length - 1)),
              json.at("shifted_ce_loss_mean").as_double(), 1e-5);
}

// One program of 36 positions; what is not there yet is segment 0.
TEST(HuggingFace, SixteenGreedyTokens) {
  const auto golden = checkpoint::open(kFolder + "/golden.safetensors");
  const Tensor prompt = golden->read("greedy_prompt").cast(DType::kS32);
  const Tensor expected = golden->read("greedy_tokens").cast(DType::kS32);
  const int64_t rows = prompt.shape()[0], given = prompt.shape()[1], more = expected.shape()[1];
  const int64_t length = given + more, vocab = 256;
  ASSERT_EQ(more, 16);
  Loaded loaded(kFolder);
  Tensor ids(DType::kS32, {rows, length}), segments(DType::kS32, {rows, length});
  const auto put = [&](int64_t row, int64_t i, int32_t id) {
    ids.mutable_data<int32_t>()[static_cast<size_t>(row * length + i)] = id;
    segments.mutable_data<int32_t>()[static_cast<size_t>(row * length + i)] = 1;
  };
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < given; ++i) {
      put(r, i, prompt.data<int32_t>()[static_cast<size_t>(r * given + i)]);
    }
  }
  for (int64_t s = 0; s < more; ++s) {
    const Tensor logits = loaded.logits(ids, segments);
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = logits.data<float>().subspan(
          static_cast<size_t>((r * length + given + s - 1) * vocab), static_cast<size_t>(vocab));
      const auto best = std::max_element(row.begin(), row.end()) - row.begin();
      EXPECT_EQ(best, expected.data<int32_t>()[static_cast<size_t>(r * more + s)])
          << "row " << r << ", token " << s;
      put(r, given + s, static_cast<int32_t>(best));
    }
  }
}

// The checkpoint with its config.json as `config`, names changed by `rename`, and 64 rows more.
void write_variant(const std::string& folder, const std::string& config, const std::string& prefix,
                   bool more) {
  const auto reader = checkpoint::open(kFolder + "/model.safetensors");
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const std::string& name : reader->names()) {
    Tensor t = reader->read(name);
    if (more && name.ends_with("embed_tokens.weight")) {
      Tensor taller(t.dtype(), {t.shape()[0] + 64, t.shape()[1]});
      for (float& x : taller.mutable_data<float>()) x = 1e3F;  // seen at once if they were read
      std::copy(t.bytes().begin(), t.bytes().end(), taller.mutable_bytes().begin());
      t = taller;
    }
    ASSERT_TRUE(name.starts_with("model."));
    tensors.emplace_back(prefix + name.substr(6), t);
  }
  if (more) {
    const std::string vision = "vision_tower.vision_model.embeddings.patch_embedding.weight";
    tensors.emplace_back(vision, Tensor(DType::kF32, {8, 3, 2, 2}));
  }
  checkpoint::write_safetensors(folder + "/model.safetensors", tensors);
  write_file(folder + "/config.json", config);
}

class Variants : public ::testing::Test {
 protected:
  Variants() : cache_(cache_folder_.path()) {
    const auto golden = checkpoint::open(kFolder + "/golden.safetensors");
    ids_ = golden->read("input_ids").cast(DType::kS32);
    expected_ = Loaded(kFolder).logits(ids_, ones(ids_.shape()), &cache_);
  }
  // Equal models make equal programs: only the first one is compiled.
  void expect_same_logits(const std::string& config, const std::string& prefix, bool more) {
    const TempFolder folder;
    write_variant(folder.path(), config, prefix, more);
    Loaded loaded(folder.path());
    EXPECT_EQ(largest_difference(loaded.logits(ids_, ones(ids_.shape()), &cache_), expected_), 0);
    EXPECT_TRUE(loaded.program->executable().from_cache());
  }
  static Json::Object config() {
    return Json::parse(read_file(kFolder + "/config.json")).as_object();
  }
  static Json::Object without(Json::Object object, std::vector<std::string> keys) {
    std::erase_if(object, [&](const auto& entry) {
      return std::find(keys.begin(), keys.end(), entry.first) != keys.end();
    });
    return object;
  }

  TempFolder cache_folder_;
  pjrt::CompileCache cache_;
  Tensor ids_, expected_;
};

// A18
TEST_F(Variants, ThreePrefixesMoreRowsAndVision) {
  const std::string same = read_file(kFolder + "/config.json");
  for (const char* prefix : {"model.", "language_model.model.", "model.language_model."}) {
    SCOPED_TRACE(prefix);
    expect_same_logits(same, prefix, true);
  }
}

// A18: whatever the rows behind the vocabulary hold, no token is one of them.
TEST_F(Variants, RowsBehindTheVocabularyAreNeverChosen) {
  const TempFolder folder;
  write_variant(folder.path(), read_file(kFolder + "/config.json"), "model.", true);
  const config::Config c = serve::testing::small_config(
      {"base_emb_dim=64", "head_dim=16", "base_mlp_dim=128", "vocab_size=256",
       "query_pre_attn_scalar=16", "rope_linear_scaling_factor=1",
       "load_parameters_path=" + folder.path()});
  const auto devices = models::gemma3::open_devices(c);
  constexpr int64_t kSlots = 8, kLength = 640;
  serve::Engine engine(c, devices, {.slots = kSlots, .max_length = kLength, .chunk = 16});
  engine.load_params();
  const std::vector<int32_t> prompt{2, 5, 9};
  for (int64_t s = 0; s < kSlots; ++s) {
    engine.insert(engine.prefill(prompt, {.temperature = 50, .seed = static_cast<uint64_t>(s)}), s);
  }
  int32_t largest = 0, chosen = 0;
  for (int64_t at = std::ssize(prompt); at < kLength - 1; ++at) {
    for (const serve::Token& token : engine.generate()) {
      ++chosen;
      largest = std::max(largest, token.id);
    }
  }
  EXPECT_GE(chosen, 5000);
  EXPECT_LT(largest, 256);
  EXPECT_GT(largest, 240) << "they were drawn from all rows";
}

// A19
TEST_F(Variants, FiveFormsOfConfig) {
  Json::Object old =
      without(config(), {"layer_types", "rope_parameters", "_sliding_window_pattern"});
  old.emplace_back("rope_theta", 1e6);
  old.emplace_back("rope_local_base_freq", 1e4);
  old.emplace_back("rope_scaling", Json());
  Json::Object with_pattern = old, with_private_pattern = old;
  with_pattern.emplace_back("sliding_window_pattern", 6);
  with_private_pattern.emplace_back("_sliding_window_pattern", 6);
  Json::Object text = without(old, {"hidden_activation"});
  text.emplace_back("hidden_activation", "gelu");  // the legacy name of the tanh form
  Json::Object nested{{"model_type", "gemma3"},
                      {"architectures", Json::Array{"Gemma3ForConditionalGeneration"}},
                      {"text_config", text},
                      {"vision_config", Json::Object{{"hidden_size", 1152}}}};
  const std::vector<Json::Object> forms{without(config(), {"_sliding_window_pattern"}),
                                        with_pattern, with_private_pattern, old, nested};
  for (size_t i = 0; i < forms.size(); ++i) {
    const std::string json = Json(forms[i]).dump(1);
    SCOPED_TRACE(json);
    expect_same_logits(json, i == 4 ? "language_model.model." : "model.", false);
  }
}

TEST_F(Variants, UnknownRopeTypeIsNamed) {
  const TempFolder folder;
  Json::Object strange = without(config(), {"rope_parameters"});
  strange.emplace_back("rope_scaling", Json::Object{{"rope_type", "yarn"}, {"factor", 8.0}});
  write_variant(folder.path(), Json(strange).dump(), "model.", false);
  EXPECT_NE(message_of([&] { WeightSource::open(folder.path()); }).find("\"yarn\""),
            std::string::npos);
}

}  // namespace
}  // namespace mt
