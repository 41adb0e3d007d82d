#include "data/batch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "data/random_text.h"
#include "data/temp_folder.h"
#include "data/test_models.h"

namespace mt::data {
namespace {

using Ids = std::vector<int32_t>;

std::shared_ptr<const Tokenizer> tiny() {
  static const auto tokenizer = std::make_shared<const Tokenizer>(tiny_tokenizer());
  return tokenizer;
}

Ids values(const Tensor& tensor) {
  const auto data = tensor.data<int32_t>();
  return {data.begin(), data.end()};
}

uint64_t hash(const Batch& batch) {
  uint64_t h = 0;
  for (const Tensor* tensor :
       {&batch.inputs, &batch.targets, &batch.inputs_position, &batch.targets_position,
        &batch.inputs_segmentation, &batch.targets_segmentation}) {
    for (const int32_t x : tensor->data<int32_t>())
      h = (h ^ static_cast<uint64_t>(x)) * 0x100000001b3ULL;
  }
  return h;
}

std::vector<uint64_t> hashes(Batcher& batcher, int most) {
  std::vector<uint64_t> all;
  for (int i = 0; i < most; ++i) {
    const auto batch = batcher.next();
    if (!batch) break;
    all.push_back(hash(*batch));
  }
  return all;
}

// A source of given texts, which throws after them if told so.
class ListSource final : public Source {
 public:
  explicit ListSource(std::vector<std::string> texts, bool fails = false)
      : texts_(std::move(texts)), fails_(fails) {}
  bool next(Document& document) override {
    if (at_ == texts_.size() && fails_) throw fail(ErrorKind::kIo, "broken.txt:9: no");
    if (at_ == texts_.size()) return false;
    document = {texts_[at_++], "list", true, true};
    return true;
  }
  int64_t epoch() const override { return 0; }
  Json state() const override { return Json(static_cast<int64_t>(at_)); }
  void restore(const Json& state) override { at_ = static_cast<size_t>(state.as_int()); }

 private:
  std::vector<std::string> texts_;
  bool fails_;
  size_t at_ = 0;
};

Batcher list_batcher(const std::vector<std::string>& texts, const BatcherOptions& options,
                     bool fails = false) {
  return Batcher(std::make_unique<ListSource>(texts, fails), tiny(), options);
}

TEST(Batcher, ArraysAndHonestEnd) {
  Batcher batcher = list_batcher({"ab", "the", "c", "the the the"}, {.rows = 2, .length = 6});
  const auto a = tiny()->encode("a")[0];
  const auto b = a + 1;
  const auto c = a + 2;
  const auto the = static_cast<int32_t>(tiny()->id_of("the"));
  const auto space_the = static_cast<int32_t>(tiny()->id_of("\xE2\x96\x81the"));
  const auto batch = batcher.next();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->inputs.shape(), (Shape{2, 6}));
  EXPECT_EQ(values(batch->inputs), (Ids{2, a, b, 2, the, 0, 2, c, 2, the, space_the, space_the}));
  EXPECT_EQ(values(batch->targets), (Ids{a, b, 1, the, 1, 0, c, 1, the, space_the, space_the, 1}));
  EXPECT_EQ(values(batch->inputs_position), (Ids{0, 1, 2, 0, 1, 0, 0, 1, 0, 1, 2, 3}));
  EXPECT_EQ(values(batch->targets_position), (Ids{1, 2, 3, 1, 2, 0, 1, 2, 1, 2, 3, 4}));
  EXPECT_EQ(values(batch->inputs_segmentation), (Ids{1, 1, 1, 2, 2, 0, 1, 1, 2, 2, 2, 2}));
  EXPECT_EQ(values(batch->targets_segmentation), values(batch->inputs_segmentation));
  EXPECT_EQ(batch->rows, 2);
  EXPECT_EQ(batch->target_count, 11);
}

TEST(Batcher, LastBatchIsPaddedAndMarked) {
  Batcher batcher = list_batcher({"ab", "cd", "ef"}, {.rows = 2, .length = 3});
  EXPECT_EQ(batcher.next()->rows, 2);
  const auto last = batcher.next();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->rows, 1);
  EXPECT_EQ(last->target_count, 3);
  EXPECT_EQ(values(last->targets_segmentation), (Ids{1, 1, 1, 0, 0, 0}));
  EXPECT_FALSE(batcher.next());
  EXPECT_FALSE(batcher.next());
  EXPECT_EQ(batcher.counts().batches, 2);
  EXPECT_EQ(batcher.counts().documents, 3);
  EXPECT_EQ(batcher.counts().tokens, 12);
  Batcher nothing = list_batcher({}, {.rows = 2, .length = 3});
  EXPECT_FALSE(nothing.next());
}

// Weights by position: pad and EOS values inside documents count; the order of documents doesn't.
TEST(Batcher, TargetsCountByPosition) {
  const BatcherOptions options = {.rows = 1, .length = 16, .add_bos = false, .add_eos = false};
  int64_t counts[2] = {0, 0};
  for (const bool reversed : {false, true}) {
    std::vector<std::string> texts = {"abc", std::string("a\0b", 3), "x the"};
    if (reversed) std::reverse(texts.begin(), texts.end());
    Batcher batcher = list_batcher(texts, options);
    while (const auto batch = batcher.next()) {
      int64_t nonzero = 0;
      for (const int32_t s : values(batch->targets_segmentation)) nonzero += s != 0;
      EXPECT_EQ(nonzero, batch->target_count);
      counts[reversed ? 1 : 0] += batch->target_count;
    }
  }
  EXPECT_EQ(counts[0], 2 + 2 + 1);
  EXPECT_EQ(counts[1], counts[0]);
}

TEST(Batcher, ErrorsCrossTheThread) {
  Batcher batcher = list_batcher({"ab", "cd"}, {.rows = 1, .length = 3}, true);
  EXPECT_TRUE(batcher.next());
  EXPECT_TRUE(batcher.next());
  for (int i = 0; i < 2; ++i) {
    try {
      batcher.next();
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kIo);
      EXPECT_STREQ(e.what(), "broken.txt:9: no");
    }
  }
}

TEST(Batcher, DataWithoutTargetsIsAnErrorNotAHang) {
  const TempFolder folder;
  Batcher batcher(open_text_source({.paths = folder.write("a.txt", "x"), .num_epoch = -1}), tiny(),
                  {.rows = 1, .length = 4, .add_bos = false, .add_eos = false});
  EXPECT_THROW(batcher.next(), Error);
}

TEST(Batcher, StopsInTheMiddle) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "the quick brown fox\n";
  const std::string file = folder.write("a.txt", text);
  for (int taken = 0; taken < 30; ++taken) {
    Batcher batcher(open_text_source({.paths = file, .num_epoch = -1}), tiny(),
                    {.rows = 2, .length = 16, .prefetch = 1 + taken % 3});
    for (int i = 0; i < taken; ++i) EXPECT_TRUE(batcher.next());
  }
}

TextSourceOptions resumable_data(const TempFolder& folder) {
  std::mt19937 random(3);
  std::string text;
  for (int i = 0; i < 60; ++i) text += random_text(random, 200) + "\n%\n";
  const std::string line = fmt::format("{{\"text\": \"{:q>300}\\n{:r>900}\"}}\n", "", "");
  const std::string paths =
      fmt::format("{},{}", folder.write("a.txt", text), folder.write("b.jsonl", line));
  return {.paths = paths,
          .document_separator = "%",
          .num_epoch = 3,
          .shuffle = true,
          .shuffle_seed = 4,
          .part_bytes = 200};
}

// 20 batches, and 7 + 13 with everything thrown away between: the same batches, whatever was
// made ahead.
TEST(Batcher, ResumesExactly) {
  const TempFolder folder;
  const TextSourceOptions data = resumable_data(folder);
  for (const bool packing : {true, false}) {
    const BatcherOptions options = {.rows = 3, .length = 64, .packing = packing, .prefetch = 3};
    Batcher whole(open_text_source(data), tiny(), options);
    const auto expected = hashes(whole, 20);
    ASSERT_EQ(expected.size(), 20U);
    for (const int cut : {0, 1, 7, 19}) {
      Batcher before(open_text_source(data), tiny(), options);
      auto found = hashes(before, cut);
      Batcher after(open_text_source(data), tiny(), options);
      after.restore(Json::parse(before.state().dump()));
      EXPECT_EQ(after.counts().batches, cut);
      for (const uint64_t h : hashes(after, 20 - cut)) found.push_back(h);
      EXPECT_EQ(found, expected);
    }
  }
}

// However long the parts in which documents are read, the batches are the same.
TEST(Batcher, PartsLeaveNoTrace) {
  const TempFolder folder;
  const auto gemma =
      std::make_shared<const Tokenizer>(Tokenizer::from_file(deps_file("tokenizer.gemma3")));
  TextSourceOptions data = resumable_data(folder);
  std::vector<uint64_t> expected;
  for (const int64_t part : {64 * 1024, 1000, 100}) {
    data.part_bytes = part;
    Batcher batcher(open_text_source(data), gemma, {.rows = 2, .length = 50});
    const auto found = hashes(batcher, 1000);
    EXPECT_GT(found.size(), 50U);
    if (expected.empty()) expected = found;
    EXPECT_EQ(found, expected) << part;
  }
}

TEST(Batcher, ResumesAtTheEnd) {
  const TempFolder folder;
  const TextSourceOptions data = resumable_data(folder);
  Batcher first(open_text_source(data), tiny(), {.rows = 4, .length = 100});
  while (first.next()) continue;
  Batcher second(open_text_source(data), tiny(), {.rows = 4, .length = 100});
  second.restore(first.state());
  EXPECT_FALSE(second.next());
}

TEST(Batcher, RefusesAStateOfOtherOptions) {
  Batcher batcher = list_batcher({"ab"}, {.rows = 1, .length = 4});
  Json state = batcher.state();
  EXPECT_THROW(list_batcher({"ab"}, {.rows = 1, .length = 5}).restore(state), Error);
  EXPECT_THROW(list_batcher({"ab"}, {.rows = 1, .length = 4, .packing = false}).restore(state),
               Error);
  state.set("vocab_size", Json(7));
  EXPECT_THROW(list_batcher({"ab"}, {.rows = 1, .length = 4}).restore(state), Error);
  EXPECT_THROW(list_batcher({"ab"}, {.rows = 0, .length = 4}), Error);
}

TEST(Synthetic, TokensOfTheCounter) {
  const Batch batch = synthetic_batch(2, 3, 100);
  const auto bits = random_bits(random_key(0), 8);
  const auto token = [&](size_t i) { return static_cast<int32_t>(bits[i] % 100); };
  EXPECT_EQ(values(batch.inputs),
            (Ids{token(0), token(1), token(2), token(4), token(5), token(6)}));
  EXPECT_EQ(values(batch.targets),
            (Ids{token(1), token(2), token(3), token(5), token(6), token(7)}));
  EXPECT_EQ(values(batch.inputs_position), (Ids{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(values(batch.targets_position), (Ids{1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(values(batch.targets_segmentation), Ids(6, 1));
  EXPECT_EQ(batch.target_count, 6);
  Batcher batcher(synthetic_batch(4, 3, 100));
  EXPECT_EQ(hash(*batcher.next()), hash(*batcher.next()));
  const Ids longer = values(batcher.next()->inputs);
  EXPECT_EQ(Ids(longer.begin(), longer.begin() + 6), values(batch.inputs));
  EXPECT_EQ(batcher.counts().batches, 3);
}

TEST(BatchSizes, AsMaxText) {
  const auto sizes = [](int64_t devices, double per_device, int64_t steps) {
    const BatchSizes s = global_batch_sizes(devices, per_device, steps);
    return std::pair(s.to_load, s.to_train);
  };
  EXPECT_EQ(sizes(4, 4, 1), std::pair(int64_t{16}, int64_t{16}));
  EXPECT_EQ(sizes(4, 1.5, 2), std::pair(int64_t{12}, int64_t{12}));
  EXPECT_EQ(sizes(4, 0.5, 3), std::pair(int64_t{12}, int64_t{6}));
  EXPECT_EQ(sizes(10, 0.7, 1), std::pair(int64_t{10}, int64_t{7}));
  const auto refusal = [](int64_t devices, double per_device, int64_t steps = 1) -> std::string {
    try {
      global_batch_sizes(devices, per_device, steps);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal(2, 0.125),
            "per_device_batch_size=0.125 on 2 devices with gradient_accumulation_steps=1 leaves "
            "no row to train on");
  EXPECT_EQ(refusal(4, 1, int64_t{1} << 60),
            "gradient_accumulation_steps=1152921504606846976 of 4 sequences each: more than 2^31 a "
            "step");
  EXPECT_EQ(refusal(1, 1.5),
            "per_device_batch_size=1.5 on 1 devices makes 1.5 sequences: not a whole number");
  EXPECT_EQ(refusal(4, 0.3),
            "per_device_batch_size=0.3 on 4 devices makes 1.2 sequences: not a whole number");
}

}  // namespace
}  // namespace mt::data
