#include "checkpoint/gguf.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <chrono>

#include "base/file.h"
#include "checkpoint/test_files.h"

namespace mt::checkpoint {
namespace {

using testing::as_span;
using testing::ByteWriter;
using testing::GgufBuilder;
using testing::message_of;
using testing::TempFolder;

std::unique_ptr<GgufFile> open_bytes(const std::string& bytes) {
  return GgufFile::open(ByteSource::memory(as_span(bytes), "f"));
}

std::string parse_error(const std::string& bytes) {
  return message_of([&] { parse_gguf(ByteSource::memory(as_span(bytes), "f")); });
}

std::string array(uint32_t type, uint64_t count, const std::string& items) {
  return ByteWriter().number(type).number(count).bytes + items;
}

TEST(Gguf, EveryValueType) {
  GgufBuilder b;
  b.number<uint8_t>("u8", 0, 200).number<int8_t>("i8", 1, -3).number<uint16_t>("u16", 2, 60000);
  b.number<int16_t>("i16", 3, -300).u32("u32", 4000000000U).number<int32_t>("i32", 5, -70000);
  b.f32("f32", 1.5F).number<uint8_t>("bool", 7, 1).text("s", "h\xc3\xa9");
  b.number<uint64_t>("u64", 10, ~uint64_t{0}).number<int64_t>("i64", 11, -5);
  b.number<double>("f64", 12, 0.1);
  b.key("strings", 9, array(8, 2, ByteWriter().text("a").text("").bytes));
  b.key("floats", 9, array(6, 2, ByteWriter().number(1.0F).number(-2.0F).bytes));
  b.key("ints", 9, array(5, 2, ByteWriter().number(int32_t{-1}).number(int32_t{7}).bytes));
  b.key("bools", 9, array(7, 2, std::string("\1\0", 2)));
  const std::string inner = array(4, 1, ByteWriter().number(uint32_t{9}).bytes);
  b.key("nested", 9, array(9, 2, inner + inner));
  const std::string bytes = b.build();
  const auto file = open_bytes(bytes);
  const auto value = [&](const char* key) -> const GgufValue& { return *file->metadata(key); };
  EXPECT_EQ(value("u8").as_int(), 200);
  EXPECT_EQ(value("i8").as_int(), -3);
  EXPECT_EQ(value("u16").as_int(), 60000);
  EXPECT_EQ(value("i16").as_int(), -300);
  EXPECT_EQ(value("u32").as_int(), 4000000000);
  EXPECT_EQ(value("i32").as_int(), -70000);
  EXPECT_EQ(value("f32").as_double(), 1.5);
  EXPECT_TRUE(value("bool").as_bool());
  EXPECT_EQ(value("s").as_string(), "h\xc3\xa9");
  EXPECT_EQ(value("i64").as_int(), -5);
  EXPECT_EQ(value("f64").as_double(), 0.1);
  EXPECT_EQ(value("strings").as_strings(), (std::vector<std::string>{"a", ""}));
  EXPECT_EQ(value("floats").as_floats(), (std::vector<float>{1, -2}));
  EXPECT_EQ(value("ints").as_ints(), (std::vector<int64_t>{-1, 7}));
  EXPECT_EQ(std::get<std::vector<uint8_t>>(value("bools").get()), (std::vector<uint8_t>{1, 0}));
  EXPECT_EQ(std::get<std::vector<GgufValue>>(value("nested").get())[1].as_ints()[0], 9);
  EXPECT_EQ(file->metadata("absent"), nullptr);
  EXPECT_EQ(message_of([&] { value("u64").as_int(); }), "18446744073709551615 is too large");
  EXPECT_EQ(message_of([&] { value("s").as_int(); }), "expected an integer, found a string");
  EXPECT_EQ(message_of([&] { value("i8").as_strings(); }),
            "expected an array of strings, found an integer");
}

TEST(Gguf, TensorsInBothVersions) {
  for (const uint32_t version : {2U, 3U}) {
    GgufBuilder b;
    b.version = version;
    b.floats("w", {3, 2}, {1, 2, 3, 4, 5, 6});
    b.tensor("h", 1, {2}, std::string("\x00\x3c\x00\xc0", 4));  // 1, -2
    b.tensor("i", 26, {1}, std::string("\5\0\0\0", 4));
    const std::string bytes = b.build();
    const auto file = open_bytes(bytes);
    EXPECT_EQ(file->names(), (std::vector<std::string>{"w", "h", "i"}));
    EXPECT_EQ(file->info("w").shape, (Shape{2, 3}));
    EXPECT_EQ(file->read("w").data<float>()[3], 4.0F);
    EXPECT_EQ(file->read("h").dtype(), DType::kF16);
    std::vector<float> f(1);
    file->read_f32("h", 1, f);
    EXPECT_EQ(f[0], -2.0F);
    EXPECT_EQ(file->read("i").data<int32_t>()[0], 5);
    EXPECT_NE(message_of([&] { file->read_f32("i", 0, f); }).find("expected a float type"),
              std::string::npos);
    EXPECT_NE(message_of([&] { file->read("z"); }).find("no tensor \"z\""), std::string::npos);
  }
}

TEST(Gguf, OtherAlignment) {
  GgufBuilder b;
  b.alignment = 64;
  b.u32("general.alignment", 64).floats("a", {1}, {1}).floats("b", {1}, {2});
  const std::string bytes = b.build();
  EXPECT_EQ(open_bytes(bytes)->read("b").data<float>()[0], 2.0F);
  const std::string four_zeros(4, '\0');
  EXPECT_NE(parse_error(GgufBuilder().u32("general.alignment", 0).build()).find("power of two"),
            std::string::npos);
  EXPECT_NE(parse_error(GgufBuilder().u32("general.alignment", 24).build()).find("power of two"),
            std::string::npos);
  EXPECT_NE(parse_error(GgufBuilder().text("general.alignment", "x").build()).find("power of two"),
            std::string::npos);
}

void expect_refused(const std::string& bytes, const std::string& message) {
  const std::string found = parse_error(bytes);
  EXPECT_TRUE(found.starts_with("f: ")) << found;
  EXPECT_NE(found.find(message), std::string::npos) << found << "\nexpected: " << message;
}

TEST(Gguf, BadHeaders) {
  GgufBuilder b;
  b.magic = "GGML";
  expect_refused(b.build(), "not a GGUF file");
  expect_refused("", "not a GGUF file");
  for (const uint32_t version : {0U, 1U, 4U}) {
    b = {};
    b.version = version;
    expect_refused(b.build(), "expected 2 or 3");
  }
  b.version = 0x03000000;
  expect_refused(b.build(), "big-endian");
  b = {};
  b.tensors = ~uint64_t{0};
  expect_refused(b.build(), "a count of 18446744073709551615");
  b = {};
  b.keys = 1000;
  expect_refused(b.build(), "a count of 1000");
}

TEST(Gguf, BadMetadata) {
  expect_refused(GgufBuilder().u32("k", 1).u32("k", 2).build(), "key \"k\": is there twice");
  expect_refused(GgufBuilder().key("k", 13, "").build(), "unknown value type 13");
  expect_refused(GgufBuilder().key("k", 9, array(13, 0, "")).build(), "unknown type 13");
  expect_refused(GgufBuilder().key("k", 9, array(8, uint64_t{1} << 60, "")).build(), "a count of");
  expect_refused(GgufBuilder().key("k", 9, array(10, 40, "")).build(), "leaves the file");
  expect_refused(GgufBuilder().key("k", 8, ByteWriter().number(~uint64_t{0}).bytes).build(),
                 "a count of");
  std::string deep = array(0, 0, "");
  for (int i = 0; i < 20; ++i) deep = array(9, 1, deep);
  expect_refused(GgufBuilder().key("k", 9, deep).build(), "nested deeper");
}

TEST(Gguf, BadTensors) {
  const std::string word(4, '\0');
  expect_refused(GgufBuilder().floats("w", {1}, {1}).floats("w", {1}, {1}).build(),
                 "is there twice");
  expect_refused(GgufBuilder().tensor("w", 16, {256}, word).build(),
                 "tensor \"w\": tensor type 16 is not supported");
  expect_refused(GgufBuilder().tensor("w", 0, {1}, word, 4).build(), "not a multiple of 32");
  expect_refused(GgufBuilder().tensor("w", 0, {1}, word, 64).build(), "leave the file");
  expect_refused(GgufBuilder().tensor("w", 0, {9}, word).build(), "leave the file");
  expect_refused(GgufBuilder().tensor("w", 0, {1}, word, ~uint64_t{31}).build(), "leave the file");
  expect_refused(GgufBuilder().tensor("w", 2, {33}, word).build(), "rows of 33");
  expect_refused(GgufBuilder().tensor("w", 0, {1, 1, 1, 1, 1}, word).build(), "5 dimensions");
  expect_refused(GgufBuilder().tensor("w", 0, {~uint64_t{0}}, word).build(), "dimension 0");
  expect_refused(GgufBuilder().tensor("w", 0, {1U << 31, 1U << 31, 4}, word).build(), "too large");
  expect_refused(GgufBuilder().tensor("w", 0, {1U << 30, 1U << 31}, word).build(), "too large");
}

// A file cut anywhere is refused, never read beyond its end.
TEST(Gguf, EveryPrefixIsRefused) {
  const std::string bytes = GgufBuilder()
                                .text("k", "value")
                                .key("a", 9, array(8, 1, ByteWriter().text("x").bytes))
                                .floats("w", {8}, {1, 2, 3, 4, 5, 6, 7, 8})
                                .build();
  EXPECT_EQ(parse_error(bytes), "");
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_NE(parse_error(bytes.substr(0, n)), "") << n << " of " << bytes.size();
  }
}

TEST(Gguf, CutWhileOpenIsAnErrorNotASignal) {
  const TempFolder folder;
  const std::string path = folder / "x.gguf";
  write_file(path, GgufBuilder().floats("w", {1 << 20}, std::vector<float>(1 << 20, 1)).build());
  const auto file = GgufFile::open(path);
  ASSERT_EQ(::truncate(path.c_str(), 4096), 0);
  EXPECT_NE(message_of([&] { file->read("w"); }).find("ends at byte"), std::string::npos);
}

TEST(Gguf, LargeVocabularyLoadsInLinearTime) {
  ByteWriter tokens;
  constexpr uint64_t kTokens = 262'144;
  for (uint64_t i = 0; i < kTokens; ++i) tokens.text("token" + std::to_string(i));
  const std::string bytes = GgufBuilder().key("t", 9, array(8, kTokens, tokens.bytes)).build();
  const auto start = std::chrono::steady_clock::now();
  const auto file = open_bytes(bytes);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(file->metadata("t")->as_strings().back(), "token262143");
  EXPECT_LT(seconds.count(), 1.5);  // a hundred times what it takes; quadratic would be minutes
}

// Gemma 3 270M against numbers from the gguf Python package 0.19.0: the sum of the float32 bit
// patterns, which agrees only if every value does.
TEST(Gguf, RealFileEqualsTheReference) {
  const std::string path = MT_DEPS "/weights/gemma-3-270m-Q4_K_M.gguf";
  ASSERT_TRUE(exists(path)) << "run scripts/setup.sh";
  const auto file = GgufFile::open(path);
  EXPECT_EQ(file->metadata("general.architecture")->as_string(), "gemma3");
  EXPECT_EQ(file->metadata("tokenizer.ggml.tokens")->as_strings().size(), 262'144U);
  EXPECT_EQ(file->metadata("tokenizer.ggml.scores")->as_floats()[0], -1000.0F);
  EXPECT_EQ(file->metadata("tokenizer.ggml.token_type")->as_ints()[2], 3);
  std::map<std::string, int> types;
  for (const std::string& name : file->names()) ++types[file->info(name).encoding];
  EXPECT_EQ(types, (std::map<std::string, int>{
                       {"F32", 109}, {"Q4_K", 27}, {"Q5_0", 81}, {"Q6_K", 9}, {"Q8_0", 10}}));
  struct Case {
    const char* name;
    Shape shape;
    uint64_t bits;
  };
  for (const Case& c : {Case{"output_norm.weight", {640}, 0xa34b170000},
                        Case{"token_embd.weight", {262144, 640}, 0x4d6043d160add00},
                        Case{"blk.0.attn_k.weight", {256, 640}, 0x12c983265f000},
                        Case{"blk.0.attn_output.weight", {640, 1024}, 0x4dc6509f85090},
                        Case{"blk.0.ffn_down.weight", {640, 2048}, 0x991b2328d6302}}) {
    ASSERT_EQ(file->info(c.name).shape, c.shape) << c.name;
    const Tensor tensor = file->read(c.name);
    uint64_t sum = 0;
    for (const uint32_t bits : tensor.data<uint32_t>()) sum += bits;
    EXPECT_EQ(sum, c.bits) << c.name;
  }
}

}  // namespace
}  // namespace mt::checkpoint
