#include "data/packing.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "base/error.h"

namespace mt::data {
namespace {

using Ids = std::vector<int32_t>;

std::vector<Row> pack(const std::vector<Ids>& documents, int64_t length, bool packing) {
  Packer packer(length, packing);
  for (const Ids& document : documents) packer.add(document, true);
  packer.finish();
  std::vector<Row> rows;
  while (packer.has_row()) rows.push_back(packer.take_row());
  return rows;
}

void expect_equal(const Row& a, const Row& b) {
  EXPECT_EQ(a.inputs, b.inputs);
  EXPECT_EQ(a.targets, b.targets);
  EXPECT_EQ(a.positions, b.positions);
  EXPECT_EQ(a.segmentation, b.segmentation);
  EXPECT_EQ(a.used, b.used);
}

TEST(Packer, ThreeDocuments) {
  const auto rows = pack({{2, 10, 11, 1}, {2, 0, 12}, {2, 13, 14, 15, 1}}, 6, true);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].inputs, (Ids{2, 10, 11, 2, 0, 0}));
  EXPECT_EQ(rows[0].targets, (Ids{10, 11, 1, 0, 12, 0}));
  EXPECT_EQ(rows[0].positions, (Ids{0, 1, 2, 0, 1, 0}));
  EXPECT_EQ(rows[0].segmentation, (Ids{1, 1, 1, 2, 2, 0}));
  EXPECT_EQ(rows[1].inputs, (Ids{2, 13, 14, 15, 0, 0}));
  EXPECT_EQ(rows[1].segmentation, (Ids{1, 1, 1, 1, 0, 0}));
  // An id 0 and an EOS as content count: 3 + 2 + 4 targets.
  EXPECT_EQ(rows[0].used + rows[1].used, 9);
}

TEST(Packer, ALongDocumentFlowsOverRows) {
  const auto rows = pack({{7, 8}, {1, 2, 3, 4, 5, 6, 7, 8, 9}}, 4, true);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].inputs, (Ids{7, 1, 2, 3}));
  EXPECT_EQ(rows[0].targets, (Ids{8, 2, 3, 4}));
  EXPECT_EQ(rows[1].inputs, (Ids{4, 5, 6, 7}));
  EXPECT_EQ(rows[1].positions, (Ids{0, 1, 2, 3}));
  EXPECT_EQ(rows[2].targets, (Ids{9, 0, 0, 0}));
}

TEST(Packer, WithoutPackingEachDocumentHasItsRow) {
  const auto rows = pack({{1, 2}, {3}, {}, {4, 5, 6}, {1, 2, 3, 4, 5, 6}}, 4, false);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0].inputs, (Ids{1, 0, 0, 0}));
  EXPECT_EQ(rows[1].inputs, (Ids{4, 5, 0, 0}));
  EXPECT_EQ(rows[2].inputs, (Ids{1, 2, 3, 4}));
  EXPECT_EQ(rows[3].targets, (Ids{6, 0, 0, 0}));
  for (const Row& row : rows) EXPECT_EQ(row.segments, 1);
}

std::vector<Ids> random_documents(std::mt19937& random) {
  std::vector<Ids> documents(random() % 30);
  for (Ids& document : documents) {
    document.resize(random() % 3 == 0 ? random() % 60 : random() % 12);
    for (int32_t& id : document) id = static_cast<int32_t>(random() % 5);  // pad and eos values too
  }
  return documents;
}

std::vector<std::pair<int32_t, int32_t>> transitions(const std::vector<Row>& rows) {
  std::vector<std::pair<int32_t, int32_t>> all;
  for (const Row& row : rows) {
    for (size_t i = 0; i < static_cast<size_t>(row.used); ++i) {
      all.emplace_back(row.inputs[i], row.targets[i]);
    }
  }
  return all;
}

void check_row(const Row& row, int64_t length) {
  for (const auto* v : {&row.inputs, &row.targets, &row.positions, &row.segmentation}) {
    ASSERT_EQ(static_cast<int64_t>(v->size()), length);
  }
  ASSERT_GT(row.used, 0);
  int32_t segment = 0;
  int32_t position = 0;
  for (size_t i = 0; i < row.inputs.size(); ++i) {
    if (static_cast<int64_t>(i) >= row.used) {
      ASSERT_EQ(row.inputs[i] | row.targets[i] | row.positions[i] | row.segmentation[i], 0);
      continue;
    }
    if (row.positions[i] == 0) ++segment, position = 0;
    ASSERT_EQ(row.segmentation[i], segment);
    ASSERT_EQ(row.positions[i], position++);
    if (row.positions[i] > 0) {
      ASSERT_EQ(row.inputs[i], row.targets[i - 1]);
    }
  }
  ASSERT_EQ(segment, row.segments);
}

// Every transition of every document once, in order; parts and resumes leave no trace.
TEST(Packer, Properties) {
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    const auto length = static_cast<int64_t>(1 + random() % 20);
    const bool packing = random() % 2 == 0;
    const auto documents = random_documents(random);
    const auto rows = pack(documents, length, packing);
    std::vector<std::pair<int32_t, int32_t>> expected;
    for (const Ids& document : documents) {
      for (size_t i = 1; i < document.size(); ++i)
        expected.emplace_back(document[i - 1], document[i]);
    }
    ASSERT_EQ(transitions(rows), expected);
    for (const Row& row : rows) check_row(row, length);

    Packer packer(length, packing);
    std::vector<Row> again;
    for (const Ids& document : documents) {
      size_t at = 0;
      do {
        const size_t count = std::min<size_t>(document.size() - at, random() % 7);
        at += count;
        packer.add(std::span(document).subspan(at - count, count), at == document.size());
        Packer resumed(length, packing);
        resumed.restore(Json::parse(packer.state().dump()));
        packer = resumed;
        if (packer.has_row() && random() % 2 == 0) again.push_back(packer.take_row());
      } while (at < document.size());
    }
    packer.finish();
    while (packer.has_row()) again.push_back(packer.take_row());
    ASSERT_EQ(again.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) expect_equal(again[i], rows[i]);
  }
}

TEST(Packer, Mistakes) {
  EXPECT_THROW(Packer(0, true), Error);
  const Json state = Packer(4, true).state();
  try {
    Packer(8, true).restore(state);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kConfig);
    EXPECT_STREQ(e.what(),
                 "the saved data position is of max_target_length=4 packing=true; here they are 8 "
                 "and true");
  }
  Json bad = state;
  bad.set("open", Json::parse("[[1, 2, 3], [1, 2, 3, 4, 5]]"));
  Packer packer(4, true);
  EXPECT_THROW(packer.restore(bad), Error);
  bad.set("open", Json::parse("[[1, -2]]"));
  EXPECT_THROW(packer.restore(bad), Error);
}

}  // namespace
}  // namespace mt::data
