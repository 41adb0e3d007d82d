#include "checkpoint/gguf_write.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "base/file.h"
#include "checkpoint/gguf.h"
#include "checkpoint/test_files.h"

namespace mt::checkpoint {
namespace {

using testing::message_of;
using testing::TempFolder;

size_t files_in(const TempFolder& folder) {
  const auto all = std::filesystem::directory_iterator(folder.path());
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

GgufTensorPlan plan(const std::string& name, std::string_view format, Shape shape) {
  return {name, find_block_format(format), std::move(shape)};
}

void write_small(const std::string& path) {
  GgufMetadata metadata;
  metadata.text("general.architecture", "x");
  GgufWriter writer(path, metadata, {plan("a", "F32", {3}), plan("b", "Q8_0", {2, 32})});
  const std::vector<float> a{1, 2, 3};
  writer.write(std::as_bytes(std::span(a)));
  writer.write(std::vector<std::byte>(68, std::byte{7}));
  writer.commit();
}

TEST(GgufWriter, EveryKindOfValueReadsBack) {
  const TempFolder folder;
  GgufMetadata m;
  m.flag("flag", true);
  m.u32("u32", 4'000'000'000);
  m.f32("f32", 1e-6);
  m.text("text", "a b");
  m.texts("texts", std::vector<std::string>{"x", "", "zz"});
  m.floats("floats", std::vector<float>{-1.5F, 2});
  m.ints("ints", std::vector<int32_t>{-3, 4});
  GgufWriter writer(folder / "x.gguf", m, {});
  writer.commit();
  const auto file = GgufFile::open(folder / "x.gguf");
  EXPECT_TRUE(file->metadata("flag")->as_bool());
  EXPECT_EQ(file->metadata("u32")->as_int(), 4'000'000'000);
  EXPECT_EQ(file->metadata("f32")->as_double(), double{1e-6F});
  EXPECT_EQ(file->metadata("text")->as_string(), "a b");
  EXPECT_EQ(file->metadata("texts")->as_strings(), (std::vector<std::string>{"x", "", "zz"}));
  EXPECT_EQ(file->metadata("floats")->as_floats(), (std::vector<float>{-1.5F, 2}));
  EXPECT_EQ(file->metadata("ints")->as_ints(), (std::vector<int64_t>{-3, 4}));
}

TEST(GgufWriter, TensorsReadBackAndNothingElseIsLeft) {
  const TempFolder folder;
  write_file(folder / "x.gguf", "an older file");
  write_small(folder / "x.gguf");
  EXPECT_EQ(files_in(folder), 1U);
  const auto file = GgufFile::open(folder / "x.gguf");
  EXPECT_EQ(file->names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(file->read("a").data<float>()[2], 3);
  EXPECT_EQ(file->info("b").encoding, "Q8_0");
  EXPECT_EQ(file->info("b").shape, (Shape{2, 32}));
  const Tensor b = file->read_stored("b");
  EXPECT_EQ(std::count(b.bytes().begin(), b.bytes().end(), std::byte{7}), 68);
  struct stat info {};
  ASSERT_EQ(::stat((folder / "x.gguf").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0644U);
}

TEST(GgufWriter, WithoutCommitNothingAppearsAndAnOlderFileStays) {
  const TempFolder folder;
  write_file(folder / "x.gguf", "an older file");
  {
    GgufWriter writer(folder / "x.gguf", {}, {plan("a", "F32", {3})});
    writer.write(std::vector<std::byte>(12));
  }
  EXPECT_EQ(files_in(folder), 1U);
  EXPECT_EQ(read_file(folder / "x.gguf"), "an older file");
}

TEST(GgufWriter, PlacesThatCantBeWrittenAreNamed) {
  const TempFolder folder;
  EXPECT_EQ(message_of([&] { write_small(folder.path()); }),
            folder.path() + ": cannot be written: is a directory");
  EXPECT_EQ(message_of([&] { write_small("/dev/null"); }),
            "/dev/null: cannot be written: is not a file");
  EXPECT_EQ(message_of([&] { write_small(folder / "missing/x.gguf"); }),
            folder / "missing/x.gguf: cannot create: No such file or directory");
}

// A limit on the size of files stands for a full disk: known before anything is written.
TEST(GgufWriter, AFullDiskIsToldAtTheStart) {
  const TempFolder folder;
  struct rlimit old {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto signal = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 1 << 20, old.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error =
      message_of([&] { GgufWriter writer(folder / "x.gguf", {}, {plan("a", "F32", {1 << 20})}); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, signal);
  EXPECT_EQ(error, folder / "x.gguf: cannot write 4.2 MB: File too large");
  EXPECT_EQ(files_in(folder), 0U);
}

}  // namespace
}  // namespace mt::checkpoint
