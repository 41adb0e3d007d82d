#include "train/memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/file.h"

namespace mt::train {
namespace {

constexpr int64_t kGiB = 1073741824;
constexpr char kMeminfo[] =
    "MemTotal:       1000000 kB\nMemFree:         300000 kB\nMemAvailable:    700000 kB\n"
    "Buffers:          50000 kB\nCached:          200000 kB\nSwapCached:           0 kB\n"
    "SReclaimable:     25000 kB\n";

template <typename Call>
std::string error_text(ErrorKind kind, Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "no error";
}

// A root folder with its own /proc and /sys.
class FakeRoot {
 public:
  FakeRoot() : path_(testing::TempDir() + "memory_test." + std::to_string(::getpid())) {
    put("/proc/meminfo", kMeminfo);
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  void put(const std::string& file, const std::string& text) {
    make_directories(std::filesystem::path(path_ + file).parent_path().string());
    write_file(path_ + file, text);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Memory, MeminfoAsPsutilReadsIt) {
  const RamStats ram = parse_meminfo(kMeminfo);
  EXPECT_EQ(ram.total, 1000000 * 1024);
  EXPECT_EQ(ram.available, 700000 * 1024);
  EXPECT_EQ(ram.used, (1000000 - 300000 - 50000 - 200000 - 25000) * 1024);
}

TEST(Memory, MeminfoWithoutALineNamesIt) {
  EXPECT_EQ(error_text(ErrorKind::kIo, [] { parse_meminfo("MemTotal: 5 kB\n"); }),
            "/proc/meminfo: no line \"MemAvailable:\"");
  EXPECT_EQ(error_text(ErrorKind::kIo, [] { parse_meminfo(""); }),
            "/proc/meminfo: no line \"MemTotal:\"");
}

TEST(Memory, ThisMachine) {
  const RamStats ram = read_ram_stats();
  EXPECT_GT(ram.used, 0);
  EXPECT_LE(ram.used, ram.total);
  EXPECT_GT(available_memory(), 0);
  EXPECT_LE(available_memory(), ram.total);
}

TEST(Memory, ProcessSeesWhatItTouches) {
  const ProcessMemory before = read_process_memory();
  constexpr size_t kSize = 64 << 20;
  {
    const std::unique_ptr<char[]> block(new char[kSize]);
    std::memset(block.get(), 1, kSize);
    asm volatile("" : : "r"(block.get()) : "memory");  // the compiler must not drop the writes
    EXPECT_GT(read_process_memory().resident, before.resident + 60 * (1 << 20));
  }
  const ProcessMemory after = read_process_memory();
  EXPECT_GE(after.peak_resident, before.resident + 60 * (1 << 20));
  EXPECT_GE(after.peak_resident, after.resident);
}

TEST(Memory, AvailableWithoutControlGroups) {
  EXPECT_EQ(available_memory(FakeRoot().path()), 700000 * 1024);
}

TEST(Memory, ControlGroupV2LimitsAndItsCacheIsFree) {
  FakeRoot root;
  root.put("/proc/self/cgroup", "0::/job/step\n");
  root.put("/sys/fs/cgroup/job/step/memory.max", "max\n");
  root.put("/sys/fs/cgroup/job/step/memory.current", "1000\n");
  root.put("/sys/fs/cgroup/job/memory.max", "500000000\n");
  root.put("/sys/fs/cgroup/job/memory.current", "300000000\n");
  root.put("/sys/fs/cgroup/job/memory.stat",
           "anon 9\ninactive_file 40000000\nactive_file 10000000\n");
  EXPECT_EQ(available_memory(root.path()), 500000000 - 250000000);
}

TEST(Memory, ControlGroupV1) {
  FakeRoot root;
  root.put("/proc/self/cgroup", "3:cpu:/a\n2:memory:/\n");
  root.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "100\n");
  EXPECT_EQ(available_memory(root.path()), 700000 * 1024);
  root.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n");
  EXPECT_EQ(available_memory(root.path()), 900);
}

MemoryNeed gemma3_4b() {
  // 3.88e9 float32 weights and two moments, over 4 devices
  return {.what = "gemma3-4b",
          .devices = 4,
          .parts = {{"parameters", 3880099328}, {"optimizer", 2 * 3880099328}}};
}

TEST(Memory, HostCheckSaysHowMuchIsMissingAndWhatToChange) {
  const MemorySettings settings = {.model_name = "gemma3-4b",
                                   .remat_policy = "minimal",
                                   .per_device_batch_size = 4,
                                   .max_target_length = 4096};
  EXPECT_EQ(
      error_text(ErrorKind::kLimit,
                 [&] { check_fits_host(gemma3_4b(), int64_t{229} * kGiB / 10, settings); }),
      "gemma3-4b needs 43.4 GB (parameters 14.5, optimizer 28.9) but 22.9 GB of RAM is available, "
      "20.5 GB too little: use a smaller model_name, weight_dtype=bfloat16, remat_policy=full, "
      "per_device_batch_size=1, a smaller max_target_length, num_vocab_tiling=8, opt_type=sgd, a "
      "machine with more RAM");
}

TEST(Memory, SuggestsOnlyWhatWouldChange) {
  const MemorySettings settings = {.model_name = "gemma3-270m",
                                   .weight_dtype = "bfloat16",
                                   .opt_type = "sgd",
                                   .max_target_length = 128,
                                   .num_vocab_tiling = 8};
  EXPECT_TRUE(memory_suggestions(settings).empty());
}

TEST(Memory, DeviceCheckIsPerDevice) {
  const MemorySettings settings = {.model_name = "gemma3-270m",
                                   .weight_dtype = "bfloat16",
                                   .opt_type = "sgd",
                                   .max_target_length = 128,
                                   .num_vocab_tiling = 8};
  EXPECT_EQ(
      error_text(ErrorKind::kLimit, [&] { check_fits_device(gemma3_4b(), 8 * kGiB, settings); }),
      "gemma3-4b needs 10.8 GB (parameters 3.6, optimizer 7.2) on each of 4 devices but 8.0 "
      "GB of device memory is available, 2.8 GB too little: use more devices "
      "(ici_fsdp_parallelism)");
}

TEST(Memory, WhatFitsPassesToTheByte) {
  const MemoryNeed need = gemma3_4b();
  EXPECT_NO_THROW(check_fits_host(need, need.bytes_on_all(), {}));
  EXPECT_THROW(check_fits_host(need, need.bytes_on_all() - 1, {}), Error);
  EXPECT_NO_THROW(check_fits_device(need, need.bytes_per_device(), {}));
  EXPECT_THROW(check_fits_device(need, need.bytes_per_device() - 1, {}), Error);
}

}  // namespace
}  // namespace mt::train
