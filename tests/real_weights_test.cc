// The real Gemma 3 270M (the GGUF file that set-up fetches), untouched, in float32: the losses that
// transformers and llama.cpp give the same text (tests/golden/real).
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "data/open_tokenizer.h"
#include "support/small_model.h"

namespace mt {
namespace {

using testing::client;

constexpr const char* kWeights = MT_DEPS "/weights/gemma-3-270m-Q4_K_M.gguf";
constexpr int64_t kChunk = 512;

std::vector<int32_t> ints(const Json& json) {
  std::vector<int32_t> out;
  for (const Json& x : json.as_array()) out.push_back(static_cast<int32_t>(x.as_int()));
  return out;
}

// Rows of texts, one after the other, each a segment of its own.
class Rows {
 public:
  Rows(int64_t rows, int64_t length) : length_(length), used_(static_cast<size_t>(rows), 0) {
    for (int i = 0; i < 5; ++i) batch.emplace_back(DType::kS32, Shape{rows, length});
  }
  // Returns where in the flat batch the loss of token 1 lies; the following ones come after it.
  size_t add(int64_t row, const std::vector<int32_t>& ids) {
    int64_t& used = used_[static_cast<size_t>(row)];
    const auto count = static_cast<int64_t>(ids.size());
    EXPECT_LE(used + count, length_);
    const auto first = static_cast<size_t>(row * length_ + used);
    ++segments_;
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool last = i + 1 == ids.size();
      const int32_t values[] = {ids[i], last ? 0 : ids[i + 1], static_cast<int32_t>(i), segments_,
                                last ? 0 : segments_};
      for (size_t k = 0; k < 5; ++k) batch[k].mutable_data<int32_t>()[first + i] = values[k];
    }
    used += count;
    return first;
  }
  std::vector<Tensor> batch;

 private:
  int64_t length_;
  std::vector<int64_t> used_;
  int32_t segments_ = 0;
};

double sum(std::span<const float> values) {
  double s = 0;
  for (const float x : values) s += static_cast<double>(x);
  return s;
}

class RealModel {
 public:
  RealModel() {
    const auto source = models::gemma3::WeightSource::open(kWeights);
    models::gemma3::ModelOptions options = testing::small_options();
    options.attention = layers::AttentionKind::kFlash;
    model_ = std::make_unique<models::gemma3::Gemma3Model>(*source->config(), options,
                                                           testing::partitioner_of());
    models::gemma3::load_parameters(*model_, *source, client());
  }
  std::vector<float> token_losses(const Rows& rows) {
    const Shape shape = rows.batch[0].shape();
    auto program = train::trace_token_losses(*model_, testing::step_options(shape[0], shape[1]))
                       ->lower()
                       .compile(client());
    return testing::values_of<float>(program(rows.batch)[0].to_host());
  }
  int64_t parameters() const { return model_->config().parameter_count(); }

 private:
  std::unique_ptr<models::gemma3::Gemma3Model> model_;
};

// Chunks as llama-perplexity -c 512 makes them: BOS in each one's first place.
std::vector<std::vector<int32_t>> license_chunks() {
  const std::string text = read_file("/usr/share/common-licenses/GPL-3").substr(0, 12000);
  const data::Tokenizer tokenizer = data::open_tokenizer(kWeights, 262144);
  const std::vector<int32_t> ids = tokenizer.encode(text, {.add_bos = true});
  std::vector<std::vector<int32_t>> chunks;
  for (size_t at = 0; at + kChunk <= ids.size(); at += kChunk) {
    chunks.emplace_back(ids.begin() + static_cast<long>(at),
                        ids.begin() + static_cast<long>(at + kChunk));
    chunks.back()[0] = static_cast<int32_t>(tokenizer.bos_id());
  }
  return chunks;
}

// One test, because every test of ours is a process and the model is read once.
TEST(RealWeights, LossesOfTransformersAndPerplexityOfLlamaCpp) {
  ASSERT_TRUE(exists(kWeights)) << kWeights << " is missing: run make setup";
  const Json golden =
      Json::parse(read_file(MT_SOURCE_DIR "/tests/golden/real/transformers_f32.json"));
  const auto chunks = license_chunks();
  ASSERT_EQ(chunks.size(), 5U);
  RealModel model;
  EXPECT_EQ(model.parameters(), 268'098'176);

  // Row 0: the ten short prompts, packed. Rows 1 to 5: the chunks of the licence.
  Rows rows(6, kChunk);
  std::vector<size_t> places;
  const auto& prompts = golden.at("short").as_array();
  ASSERT_EQ(prompts.size(), 10U);
  for (const Json& prompt : prompts) {
    std::vector<int32_t> ids = ints(prompt.at("ids"));
    const std::vector<int32_t> forced = ints(prompt.at("forced"));
    ids.insert(ids.end(), forced.begin(), forced.end());
    places.push_back(rows.add(0, ids));
  }
  for (size_t c = 0; c < chunks.size(); ++c) rows.add(static_cast<int64_t>(c) + 1, chunks[c]);
  const std::vector<float> losses = model.token_losses(rows);
  for (size_t p = 0; p < prompts.size(); ++p) {
    const auto& expected = prompts[p].at("nll").as_array();
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(losses[places[p] + i]), expected[i].as_double(), 1e-3)
          << "prompt " << p << ", token " << i + 1;
    }
  }
  double scored = 0;
  const size_t half = kChunk / 2, counted = half - 1;
  for (size_t c = 1; c <= chunks.size(); ++c) {
    scored += sum(std::span(losses).subspan(c * kChunk + half, counted));
  }
  const double perplexity = std::exp(scored / static_cast<double>(counted * chunks.size()));
  EXPECT_NEAR(perplexity, 14.9197, 0.02 * 14.9197);

  // Beyond the window of 512 keys, in blocks of which the last one is not full.
  const std::vector<int32_t> ids = ints(golden.at("long").at("ids"));
  const auto length = static_cast<int64_t>(ids.size());
  Rows one(1, length);
  one.add(0, ids);
  EXPECT_NEAR(sum(model.token_losses(one)) / static_cast<double>(length - 1),
              golden.at("long").at("sum_nll_prompt").as_double() / static_cast<double>(length - 1),
              1e-3);
}

}  // namespace
}  // namespace mt
