#include "train/tensorboard.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace mt::train {
namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(testing::TempDir() + "mt_" + name + "." + std::to_string(::getpid())) {}
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Splits a file into records without using any of the writer's code.
std::vector<std::string> records(std::string_view file) {
  std::vector<std::string> found;
  while (!file.empty()) {
    uint64_t size = 0;
    if (file.size() < 16) throw std::runtime_error("cut-off frame");
    std::memcpy(&size, file.data(), 8);
    if (file.size() < 16 + size) throw std::runtime_error("cut-off record");
    found.emplace_back(file.substr(12, size));
    file.remove_prefix(16 + size);
  }
  return found;
}

TEST(TensorBoard, Crc32cOfTheStandardVector) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);              // the check value of CRC-32C
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);    // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);  // RFC 3720, B.4
}

// The bytes that TensorBoard 2.21's own RecordWriter and event_pb2.Event give for the same events.
TEST(TensorBoard, RecordsAreThoseOfTensorBoardItself) {
  EXPECT_EQ(hex(tfrecord(version_event(1700000000.25))),
            "1800000000000000a37f4b220900001040fc54d9411a0d627261696e2e4576656e743a32338d2fe9");
  EXPECT_EQ(hex(tfrecord(scalar_event(1700000000.25, 300, "learning/loss", 12.574f))),
            "2400000000000000422b804d0900001040fc54d94110ac022a160a140a0d6c6561726e696e672f6c6f7373"
            "151b2f4941a760ca19");
  EXPECT_EQ(hex(tfrecord(text_event(1700000000.25, 0, "model_name/text_summary", "gemma3-4b"))),
            "4500000000000000ebe668b00900001040fc54d9412a3a0a380a176d6f64656c5f6e616d652f746578745f"
            "73756d6d61727942130807120412020801420967656d6d61332d34624a080a060a04746578748a8e8c98");
}

TEST(TensorBoard, FileHoldsTheVersionAndWhatWasAdded) {
  const Folder folder("events");
  std::string path;
  {
    EventWriter writer(folder.path());
    path = writer.path();
    EXPECT_EQ(records(read_file(path)).size(), 1u);  // a running TensorBoard sees the run at once
    writer.scalar("perf/step_time_seconds", 1.6, 7);
    writer.text("model_name", "gemma3-4b");
    EXPECT_EQ(records(read_file(path)).size(), 1u);  // buffered
    writer.flush();
    EXPECT_EQ(records(read_file(path)).size(), 3u);
    writer.scalar("learning/loss", 12.5, 8);
  }
  const std::vector<std::string> found = records(read_file(path));
  ASSERT_EQ(found.size(), 4u);
  const size_t after_time = 9;  // tag and double
  EXPECT_EQ(found[0].substr(after_time), version_event(0).substr(after_time));
  EXPECT_EQ(found[1].substr(after_time),
            scalar_event(0, 7, "perf/step_time_seconds", 1.6f).substr(after_time));
  EXPECT_EQ(found[2].substr(after_time),
            text_event(0, 0, "model_name/text_summary", "gemma3-4b").substr(after_time));
  EXPECT_EQ(found[3].substr(after_time),
            scalar_event(0, 8, "learning/loss", 12.5f).substr(after_time));
}

TEST(TensorBoard, FileNamesAreTensorBoardsAndDiffer) {
  const Folder folder("names");
  const EventWriter first(folder.path() + "/deep/run/");
  const EventWriter second(folder.path() + "/deep/run");
  EXPECT_TRUE(first.path().starts_with(folder.path() + "/deep/run/events.out.tfevents."));
  EXPECT_NE(first.path(), second.path());
}

TEST(TensorBoard, UnwritableFolderIsNamed) {
  const Folder folder("blocked");
  make_directories(folder.path());
  write_file(folder.path() + "/file", "");
  try {
    const EventWriter writer(folder.path() + "/file/tensorboard");
    FAIL() << "made a folder inside a file";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_NE(std::string(error.what()).find(folder.path() + "/file"), std::string::npos);
  }
}

// What a shell command prints; its exit status must be 0.
std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  char piece[512];
  while (const size_t size = std::fread(piece, 1, sizeof(piece), pipe)) text.append(piece, size);
  EXPECT_EQ(::pclose(pipe), 0) << command;
  return text;
}

// TensorBoard checks frames and checksums itself and stops at the first bad record.
TEST(TensorBoard, TensorBoardReadsIt) {
  const std::string tensorboard = MT_DEPS "/tensorboard";
  ASSERT_TRUE(exists(tensorboard + "/done")) << "run scripts/setup.sh";
  const Folder folder("read_back");
  const std::string prompt = fmt::format("J\xc3\xa4 {:x<300}", "");  // two bytes of length
  {
    EventWriter writer(folder.path());
    writer.scalar("learning/loss", 12.5, 0);
    writer.scalar("learning/loss", std::numeric_limits<double>::quiet_NaN(), 1);
    writer.scalar("learning/loss", 11.25, 150000);
    writer.scalar("perf/per_device_tflops", 391.5, 0);
    writer.text("model_name", "gemma3-4b");
    writer.text("libtpu_init_args", "");
    writer.text("prompt", prompt);
  }
  const std::string command =
      fmt::format("PYTHONPATH={0}/lib {0}/python {1}/scripts/read_events.py {2} 2>&1", tensorboard,
                  MT_SOURCE_DIR, folder.path());
  EXPECT_EQ(output_of(command), fmt::format("version 2.0\n"
                                            "scalar learning/loss 0 12.5\n"
                                            "scalar learning/loss 1 nan\n"
                                            "scalar learning/loss 150000 11.25\n"
                                            "scalar perf/per_device_tflops 0 391.5\n"
                                            "text libtpu_init_args/text_summary 0 \n"
                                            "text model_name/text_summary 0 gemma3-4b\n"
                                            "text prompt/text_summary 0 {}\n",
                                            prompt));
}

}  // namespace
}  // namespace mt::train
