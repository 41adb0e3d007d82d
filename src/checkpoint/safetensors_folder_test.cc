#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/test_files.h"

namespace mt::checkpoint {
namespace {

using testing::message_of;
using testing::TempFolder;

// Tensors a and b in shard 1, c in shard 2.
class Shards : public ::testing::Test {
 protected:
  void SetUp() override {
    write_safetensors(folder / "1.safetensors", {{"a", number(1)}, {"b", number(2)}});
    write_safetensors(folder / "2.safetensors", {{"c", number(3)}});
    index("1.safetensors", "2.safetensors");
  }
  static Tensor number(float v) { return Tensor::of<float>(DType::kF32, {1}, {v}); }
  void index(const std::string& ab, const std::string& c) {
    write_file(folder / "model.safetensors.index.json",
               R"({"metadata":{"total_size":12},"weight_map":{"a":")" + ab + R"(","b":")" + ab +
                   R"(","c":")" + c + R"("}})");
  }
  std::string error() {
    return message_of([&] { open(folder.path()); });
  }
  TempFolder folder;
};

TEST_F(Shards, AreRead) {
  const auto reader = open(folder.path());
  EXPECT_EQ(reader->names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(reader->read("b").data<float>()[0], 2.0F);
  EXPECT_EQ(reader->read("c").data<float>()[0], 3.0F);
  EXPECT_EQ(reader->find("d"), nullptr);
  EXPECT_NE(message_of([&] { reader->read("d"); }).find("no tensor \"d\""), std::string::npos);
}

TEST_F(Shards, StrayFileIsIgnored) {
  write_safetensors(folder / "model.safetensors", {{"a", number(9)}, {"x", number(9)}});
  const auto reader = open(folder.path());
  EXPECT_EQ(reader->names().size(), 3U);
  EXPECT_EQ(reader->read("a").data<float>()[0], 1.0F);
}

TEST_F(Shards, MissingFileIsNamed) {
  std::filesystem::remove(folder / "2.safetensors");
  EXPECT_NE(error().find("/2.safetensors: missing"), std::string::npos) << error();
}

TEST_F(Shards, RenamedFileIsNamed) {
  std::filesystem::rename(folder / "1.safetensors", folder / "one.safetensors");
  EXPECT_NE(error().find("/1.safetensors: missing"), std::string::npos) << error();
}

TEST_F(Shards, TensorMissingInItsShardIsNamed) {
  index("2.safetensors", "2.safetensors");
  EXPECT_NE(error().find("/2.safetensors: no tensor \"a\""), std::string::npos) << error();
}

TEST_F(Shards, TensorInTwoShardsIsNamed) {
  write_safetensors(folder / "2.safetensors", {{"c", number(3)}, {"a", number(4)}});
  EXPECT_NE(error().find("holds tensor \"a\", which model.safetensors.index.json places in"),
            std::string::npos)
      << error();
}

TEST_F(Shards, TensorThatTheIndexDoesNotNameIsNamed) {
  write_safetensors(folder / "2.safetensors", {{"c", number(3)}, {"x", number(4)}});
  EXPECT_NE(error().find("holds tensor \"x\", which"), std::string::npos) << error();
}

TEST_F(Shards, PathsOutOfTheFolderAreRefused) {
  for (const char* name : {"../1.safetensors", "/etc/passwd", "..", "", "a/b", "1\\\\2"}) {
    index("1.safetensors", name);
    EXPECT_NE(error().find("is not the plain name"), std::string::npos) << name << ": " << error();
  }
}

TEST_F(Shards, BrokenIndexIsNamed) {
  const std::string path = folder / "model.safetensors.index.json";
  const std::string whole = read_file(path);
  write_file(path, std::string_view(whole).substr(0, whole.size() / 2));
  EXPECT_NE(error().find(path + ": invalid JSON"), std::string::npos) << error();
  write_file(path, "{}");
  EXPECT_NE(error().find(path + ": missing key \"weight_map\""), std::string::npos) << error();
  write_file(path, R"({"weight_map":[]})");
  EXPECT_NE(error().find(path + ": expected an object"), std::string::npos) << error();
  write_file(path, R"({"weight_map":{"a":1}})");
  EXPECT_NE(error().find("the file of tensor \"a\" is not a string"), std::string::npos) << error();
  write_file(path, R"({"weight_map":{"a":"1.safetensors","a":"2.safetensors"}})");
  EXPECT_NE(error().find("duplicate key \"a\""), std::string::npos) << error();
}

TEST_F(Shards, WithoutIndex) {
  std::filesystem::remove(folder / "model.safetensors.index.json");
  EXPECT_NE(error().find("2 *.safetensors files and no model.safetensors.index.json"),
            std::string::npos)
      << error();
  std::filesystem::remove(folder / "1.safetensors");
  EXPECT_EQ(open(folder.path())->read("c").data<float>()[0], 3.0F);
  write_safetensors(folder / "model.safetensors", {{"m", number(5)}});
  EXPECT_EQ(open(folder.path())->names(), std::vector<std::string>{"m"});
}

}  // namespace
}  // namespace mt::checkpoint
