#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "checkpoint/test_files.h"

namespace mt::checkpoint {
namespace {

using testing::as_span;
using testing::ByteWriter;
using testing::message_of;
using testing::TempFolder;

std::string file_of(const std::string& header, const std::string& data) {
  ByteWriter w;
  w.number<uint64_t>(header.size());
  return w.bytes + header + data;
}

std::string parse_error(const std::string& bytes) {
  return message_of([&] { parse_safetensors(ByteSource::memory(as_span(bytes), "f")); });
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"w\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
         "}}";
}

TEST(Safetensors, WritesAndReads) {
  const TempFolder folder;
  const Tensor a = Tensor::of<float>(DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor b = Tensor::of<uint16_t>(DType::kBF16, {2}, {0x3f80, 0xc000});  // 1, -2
  const Tensor c = Tensor::of<int64_t>(DType::kS64, {}, {-7});
  const Tensor empty(DType::kF64, {0, 5});
  write_safetensors(folder / "x.safetensors", {{"a", a}, {"b", b}, {"e", empty}, {"c", c}},
                    {{"format", "pt"}});
  const auto reader = open(folder / "x.safetensors");
  EXPECT_EQ(reader->names().size(), 4U);
  EXPECT_EQ(reader->info("a").shape, (Shape{2, 3}));
  EXPECT_EQ(reader->info("b").encoding, "BF16");
  EXPECT_EQ(reader->read("a").data<float>()[5], 6.0F);
  EXPECT_EQ(reader->read("c").data<int64_t>()[0], -7);
  EXPECT_EQ(reader->read("e").shape(), (Shape{0, 5}));
  std::vector<float> f(2);
  reader->read_f32("b", 0, f);
  EXPECT_EQ(f, (std::vector<float>{1, -2}));
  f.resize(1);
  reader->read_f32("a", 4, f);
  EXPECT_EQ(f[0], 5.0F);
  EXPECT_NE(message_of([&] { reader->read("z"); }).find("no tensor \"z\""), std::string::npos);
  EXPECT_NE(message_of([&] { reader->read_f32("c", 0, f); }).find("expected a float type"),
            std::string::npos);
  EXPECT_EQ(parse_safetensors(ByteSource::file(folder / "x.safetensors")).metadata.at("format"),
            "pt");
}

TEST(Safetensors, EveryDtypeSurvives) {
  const TempFolder folder;
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const DType t : {DType::kPred, DType::kS8, DType::kS32, DType::kS64, DType::kU8, DType::kU32,
                        DType::kU64, DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    tensors.emplace_back(std::string(name(t)), Tensor(t, {3}));
  }
  write_safetensors(folder / "x", tensors);
  const auto reader = open(folder / "x");
  for (const auto& [name, tensor] : tensors) EXPECT_EQ(reader->read(name).dtype(), tensor.dtype());
}

struct Bad {
  const char* what;
  std::string bytes;
  const char* message;
};

class BadFile : public ::testing::TestWithParam<Bad> {};

TEST_P(BadFile, IsRefused) {
  const std::string message = parse_error(GetParam().bytes);
  EXPECT_TRUE(message.starts_with("f: ")) << message;
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
  EXPECT_LT(message.size(), 500U);
}

std::string length_only(uint64_t length, const std::string& rest = "") {
  return ByteWriter().number(length).bytes + rest;
}

INSTANTIATE_TEST_SUITE_P(
    All, BadFile,
    ::testing::Values(
        Bad{"empty", "", "HeaderTooSmall"}, Bad{"seven_bytes", "1234567", "HeaderTooSmall"},
        Bad{"length_all_ones", length_only(~uint64_t{0}, "{}"), "HeaderTooLarge"},
        Bad{"length_zero", length_only(0, "{}"), "InvalidHeaderStart"},
        Bad{"length_past_end", length_only(7, "{}"), "InvalidHeaderLength"},
        Bad{"over_100_megabytes", length_only(100'000'001, "{}"), "HeaderTooLarge"},
        Bad{"not_an_object", file_of("[]", ""), "InvalidHeaderStart"},
        Bad{"leading_space", file_of(" {}", ""), "InvalidHeaderStart"},
        Bad{"broken_json", file_of("{\"a\":", ""), "InvalidHeaderDeserialization"},
        Bad{"bad_utf8", file_of("{\"\xff\":1}", ""), "InvalidHeaderDeserialization"},
        Bad{"entry_not_object", file_of("{\"w\":3}", ""), "missing key \"dtype\""},
        Bad{"no_shape", file_of("{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,0]}}", ""),
            "missing key \"shape\""},
        Bad{"begin_after_end", file_of(one("F32", "[1]", "[4,0]"), "1234"), "InvalidOffset"},
        Bad{"three_offsets", file_of(one("F32", "[1]", "[0,4,4]"), "1234"), "InvalidOffset"},
        Bad{"negative_dimension", file_of(one("F32", "[-1]", "[0,4]"), "1234"), "whole numbers"},
        Bad{"fractional_dimension", file_of(one("F32", "[1.5]", "[0,4]"), "1234"), "whole numbers"},
        Bad{"huge_offset", file_of(one("F32", "[1]", "[0,18446744073709551615]"), "1234"),
            "whole numbers"},
        Bad{"shape_wraps", file_of(one("F32", "[4294967296,4294967296,16]", "[0,0]"), ""),
            "ValidationOverflow"},
        Bad{"bytes_wrap", file_of(one("F64", "[2305843009213693952]", "[0,0]"), ""),
            "ValidationOverflow"},
        Bad{"range_not_shape", file_of(one("F32", "[2]", "[0,4]"), "1234"), "TensorInvalidInfo"},
        Bad{"byte_short", file_of(one("F32", "[1]", "[0,4]"), "123"), "MetadataIncompleteBuffer"},
        Bad{"byte_long", file_of(one("F32", "[1]", "[0,4]"), "12345"), "MetadataIncompleteBuffer"},
        Bad{"no_tensors_but_data", file_of("{}", "1"), "MetadataIncompleteBuffer"},
        Bad{"hole", file_of(one("U8", "[1]", "[1,2]"), "12"), "hole"},
        Bad{"overlap",
            file_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                    "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
                    "123"),
            "overlap"},
        Bad{"same_name_twice",
            file_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                    "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                    "12"),
            "duplicate key \"a\""},
        Bad{"float8", file_of(one("F8_E4M3", "[1]", "[0,1]"), "1"), "is \"F8_E4M3\""},
        Bad{"unknown_dtype", file_of(one("Q9", "[1]", "[0,1]"), "1"), "unsupported dtype"},
        Bad{"metadata_number", file_of("{\"__metadata__\":{\"a\":1}}", ""), "__metadata__"},
        Bad{"metadata_string", file_of("{\"__metadata__\":\"a\"}", ""), "__metadata__"},
        Bad{"deep", file_of("{\"a\":" + std::string(5000, '['), ""), "nested deeper"},
        Bad{"long_name", file_of("{\"" + std::string(5000, 'n') + "\":1}", ""), "InvalidHeader"}),
    [](const auto& param) { return std::string(param.param.what); });

TEST(Safetensors, ScalarEmptyPaddedAndUnaligned) {
  // The header's odd length puts the data at an odd offset; empty tensors share an offset.
  const std::string header =
      "{\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
      "\"z\":{\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[0,0]}}";
  for (const char* padding : {"", " ", "   "}) {
    const std::string bytes = file_of(header + padding, std::string("\0\0\x80\x3f", 4));
    const auto reader = open_safetensors(ByteSource::memory(as_span(bytes), "f"));
    EXPECT_EQ(reader->read("s").data<float>()[0], 1.0F);
    EXPECT_EQ(reader->read("z").size(), 0);
  }
}

TEST(Safetensors, OnlyRegularFiles) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_NE(message_of([&] { open_safetensors(folder / "fifo"); }).find("not a file"),
            std::string::npos);
  EXPECT_NE(message_of([&] { open_safetensors(folder.path()); }).find("directory"),
            std::string::npos);
  EXPECT_NE(message_of([&] { open(folder / "absent"); }).find("cannot open"), std::string::npos);
  EXPECT_NE(message_of([&] { open(folder.path()); }).find("0 *.safetensors files"),
            std::string::npos);
  write_safetensors(folder / "x", {{"a", Tensor(DType::kF32, {1})}});
  ASSERT_EQ(::symlink("x", (folder / "link").c_str()), 0);  // as in Hugging Face's cache
  EXPECT_EQ(open(folder / "link")->names().size(), 1U);
  ASSERT_EQ(::symlink("nowhere", (folder / "dangling").c_str()), 0);
  EXPECT_NE(message_of([&] { open(folder / "dangling"); }), "");
}

TEST(Safetensors, CutWhileOpenIsAnErrorNotASignal) {
  const TempFolder folder;
  const std::string path = folder / "x";
  write_safetensors(path, {{"a", Tensor(DType::kF32, {100'000})}});
  const auto reader = open(path);
  ASSERT_EQ(::truncate(path.c_str(), 1000), 0);
  EXPECT_NE(message_of([&] { reader->read("a"); }).find("ends at byte"), std::string::npos);
  std::vector<float> out(100'000);
  EXPECT_NE(message_of([&] { reader->read_f32("a", 0, out); }).find("ends at byte"),
            std::string::npos);
}

TEST(Safetensors, FailedWriteLeavesNothing) {
  const TempFolder folder;
  EXPECT_NE(message_of([&] { write_safetensors(folder / "no/x", {}); }).find("cannot create"),
            std::string::npos);
  std::filesystem::create_directory(folder / "taken");
  EXPECT_NE(message_of([&] {
              write_safetensors(folder / "taken", {});
            }).find("cannot be written: is a directory"),
            std::string::npos);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace mt::checkpoint
