#include "pjrt/cache.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <set>
#include <thread>

#include "base/file.h"
#include "pjrt/test_client.h"

namespace mt::pjrt {
namespace {

// A program that takes the compiler a while: a chain of different matrix products.
std::string slow_program() {
  std::string out =
      "module @slow { func.func public @main(%a0: tensor<96x96xf32>) -> tensor<96x96xf32> {\n";
  const char* t = "tensor<96x96xf32>";
  for (int i = 0; i < 40; ++i) {
    out += fmt::format("  %c{} = stablehlo.constant dense<{}.5> : {}\n", i, i, t);
    out += fmt::format(
        "  %d{0} = stablehlo.dot_general %a{0}, %a{0}, contracting_dims = [1] x [0] : ({1}, {1}) "
        "-> {1}\n",
        i, t);
    out += fmt::format("  %s{0} = stablehlo.add %d{0}, %c{0} : {1}\n", i, t);
    out += fmt::format("  %a{} = stablehlo.tanh %s{} : {}\n", i + 1, i, t);
  }
  return out + fmt::format("  return %a40 : {} }} }}", t);
}

double seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

float run(const Executable& program, const std::shared_ptr<Client>& client) {
  Array a = Array::from_host(client, Tensor::of<float>(DType::kF32, {4}, {1, 2, 3, 4}));
  return run_one(program, {&a}, a.type_ref()).to_host().data<float>()[3];
}

TEST(Hash, DiffersForDifferentBytes) {
  std::set<std::string> seen;
  std::string text;
  for (int i = 0; i < 300; ++i) {  // lengths, among them all the remainders of 8
    EXPECT_TRUE(seen.insert(hash128(text).hex()).second);
    text.push_back('\0');
  }
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(1 << (bit % 8));
    EXPECT_TRUE(seen.insert(hash128(changed).hex()).second);
  }
  EXPECT_EQ(hash128("abc"), hash128("abc"));
  EXPECT_FALSE(hash128("abc", hash128("x")) == hash128("abc", hash128("y")));
  EXPECT_EQ(hash128("").hex().size(), 32U);
}

// One bit of input changes about half of the output's.
TEST(Hash, Mixes) {
  const std::string text(64, 'q');
  const Hash128 base = hash128(text);
  int least = 128;
  for (size_t bit = 0; bit < 512; ++bit) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    const Hash128 h = hash128(changed);
    least = std::min(least, std::popcount(h.high ^ base.high) + std::popcount(h.low ^ base.low));
  }
  EXPECT_GT(least, 32);
}

TEST(CompileCache, LoadsWhatWasCompiledBefore) {
  auto client = test_client(1);
  const TestFolder folder;
  CompileCache cache(folder.path() + "/deep/er");
  const std::string program = slow_program();
  std::optional<Executable> compiled, loaded;
  const double cold = seconds([&] { compiled = Executable::compile(client, program, {}, &cache); });
  const double warm = seconds([&] { loaded = Executable::compile(client, program, {}, &cache); });
  EXPECT_FALSE(compiled->from_cache());
  EXPECT_TRUE(loaded->from_cache());
  EXPECT_EQ(loaded->num_outputs(), 1);
  EXPECT_EQ(loaded->memory_stats().arguments, compiled->memory_stats().arguments);
  EXPECT_LT(warm, cold) << "cold " << cold << " s, warm " << warm << " s";
  RecordProperty("cold_ms", static_cast<int>(cold * 1e3));
  RecordProperty("warm_ms", static_cast<int>(warm * 1e3));
  fmt::print("compile {:.1f} ms, load {:.1f} ms\n", cold * 1e3, warm * 1e3);
}

TEST(CompileCache, ShardedProgramsWithDonationComeBackWhole) {
  auto client = test_client(4);
  const TestFolder folder;
  CompileCache cache(folder.path());
  const auto rows = array_type(DType::kF32, {64, 128}, fsdp(4), {{{"fsdp"}, {}}});
  const auto weights = array_type(DType::kF32, {128, 128}, fsdp(4), {{{"fsdp"}, {}}});
  for (int i = 0; i < 2; ++i) {
    const Executable program =
        Executable::compile(client, kShardedProgram, {.num_partitions = 4}, &cache);
    EXPECT_EQ(program.from_cache(), i == 1);
    EXPECT_EQ(program.num_partitions(), 4);
    EXPECT_EQ(program.memory_stats().aliased, 16 * 128 * 4);
    Array a = Array::from_host(client, Tensor(DType::kF32, {64, 128}), rows);
    Array b = Array::from_host(client, Tensor(DType::kF32, {128, 128}), weights);
    Array* arguments[] = {&a, &b};
    const ArrayTypeRef results[] = {rows};
    const int64_t donated[] = {0};
    EXPECT_EQ(program.execute(arguments, results, donated)[0].to_host().data<float>()[9], 0.0F);
  }
}

TEST(CompileCache, KeysDifferByWhatDecidesTheCode) {
  const TestFolder folder;
  const CompileCache cache(folder.path());
  auto one = test_client(1);
  auto two = test_client(2);
  std::set<std::string> keys;
  const auto add = [&](const Client& client, const char* program, const CompileOptions& options) {
    return keys.insert(cache.key(client, program, options).hex()).second;
  };
  EXPECT_TRUE(add(*one, kAddOne, {}));
  EXPECT_FALSE(add(*one, kAddOne, {}));
  EXPECT_TRUE(add(*two, kAddOne, {}));
  EXPECT_TRUE(add(*one, kShardedProgram, {}));
  EXPECT_TRUE(add(*one, kAddOne, {.num_partitions = 2}));
  EXPECT_TRUE(add(*one, kAddOne, {.shardy = false}));
  CompileOptions with;
  with.xla = {{"xla_cpu_enable_fast_math", true}};
  EXPECT_TRUE(add(*one, kAddOne, with));
  const char* flags = std::getenv("XLA_FLAGS");
  const std::string saved = flags == nullptr ? "" : flags;
  ::setenv("XLA_FLAGS", (saved + " --xla_cpu_enable_fast_math=true").c_str(), 1);
  EXPECT_TRUE(add(*one, kAddOne, {}));
  flags == nullptr ? ::unsetenv("XLA_FLAGS") : ::setenv("XLA_FLAGS", saved.c_str(), 1);
}

TEST(CompileCache, IgnoresAndReplacesBadEntries) {
  auto client = test_client(1);
  const TestFolder folder;
  CompileCache cache(folder.path());
  const Hash128 key = cache.key(*client, kAddOne, {});
  Executable::compile(client, kAddOne, {}, &cache);
  const std::string good = read_file(cache.path(key));
  std::vector<std::string> bad = {"",
                                  "x",
                                  good.substr(0, 47),
                                  good.substr(0, good.size() / 2),
                                  good + "tail",
                                  std::string(100000, 'z')};
  for (const size_t at :
       {size_t{0}, size_t{9}, size_t{25}, size_t{33}, size_t{48}, good.size() - 1}) {
    bad.push_back(good);
    bad.back()[at] = static_cast<char>(bad.back()[at] ^ 0x40);
  }
  for (size_t i = 0; i < bad.size(); ++i) {
    write_file(cache.path(key), bad[i]);
    EXPECT_EQ(cache.load(key), std::nullopt) << i;
    EXPECT_FALSE(Executable::compile(client, kAddOne, {}, &cache).from_cache()) << i;
    const Executable again = Executable::compile(client, kAddOne, {}, &cache);
    EXPECT_TRUE(again.from_cache()) << i;
    EXPECT_EQ(run(again, client), 5.0F);
  }
}

// A well-formed entry with contents that the plugin refuses, as another plugin's would be.
TEST(CompileCache, CompilesWhenThePluginRefusesTheEntry) {
  auto client = test_client(1);
  const TestFolder folder;
  CompileCache cache(folder.path());
  const Hash128 key = cache.key(*client, kAddOne, {});
  ASSERT_TRUE(cache.store(key, "well kept, but no executable"));
  EXPECT_FALSE(Executable::compile(client, kAddOne, {}, &cache).from_cache());
  EXPECT_TRUE(Executable::compile(client, kAddOne, {}, &cache).from_cache());
}

TEST(CompileCache, RunsOnWhenItCannotWrite) {
  auto client = test_client(1);
  const TestFolder folder;
  CompileCache cache(folder.path() + "/c");
  ASSERT_EQ(::rmdir((folder.path() + "/c").c_str()), 0);
  EXPECT_EQ(run(Executable::compile(client, kAddOne, {}, &cache), client), 5.0F);
  EXPECT_NE(cache.problem().find("cannot"), std::string::npos) << cache.problem();
  write_file(folder.path() + "/file", "x");
  EXPECT_NE(error_of([&] { CompileCache(folder.path() + "/file"); }), "");
}

TEST(CompileCache, DropsTheOldestBeyondItsSize) {
  const TestFolder folder;
  CompileCache cache(folder.path(), 3000);
  for (uint64_t i = 1; i <= 5; ++i) {
    ASSERT_TRUE(cache.store({0, i}, std::string(900, 'a')));
    const timespec times[2] = {{static_cast<time_t>(1000 * i), 0},
                               {static_cast<time_t>(1000 * i), 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, cache.path({0, i}).c_str(), times, 0), 0);
  }
  EXPECT_FALSE(cache.load({0, 1}).has_value());
  EXPECT_FALSE(cache.load({0, 2}).has_value());
  EXPECT_TRUE(cache.load({0, 5}).has_value());
}

// Two programs that compile into one folder at the same time: this test's own program, started
// twice more as CompileCacheChild below.
TEST(CompileCache, TwoProcessesMayShareAFolder) {
  const TestFolder folder;
  const std::string command = fmt::format(
      "MT_TEST_CACHE={} /proc/{}/exe --gtest_filter=CompileCacheChild.* >{}/log.$0 2>&1",
      folder.path(), ::getpid(), folder.path());
  int rc[2] = {-1, -1};
  std::thread first([&] { rc[0] = std::system(("sh -c '" + command + "' 1").c_str()); });
  std::thread second([&] { rc[1] = std::system(("sh -c '" + command + "' 2").c_str()); });
  first.join();
  second.join();
  EXPECT_EQ(rc[0], 0) << read_file(folder.path() + "/log.1");
  EXPECT_EQ(rc[1], 0) << read_file(folder.path() + "/log.2");
  auto client = test_client(1);
  CompileCache cache(folder.path());
  EXPECT_TRUE(Executable::compile(client, kAddOne, {}, &cache).from_cache());
}

TEST(CompileCacheChild, CompilesAndLoadsManyTimes) {
  const char* folder = std::getenv("MT_TEST_CACHE");
  if (folder == nullptr) return;  // a part of the test above, nothing on its own
  auto client = test_client(1);
  CompileCache cache(folder);
  const Hash128 key = cache.key(*client, kAddOne, {});
  for (int i = 0; i < 40; ++i) {
    if (i % 4 == 0) ::unlink(cache.path(key).c_str());
    ASSERT_EQ(run(Executable::compile(client, kAddOne, {}, &cache), client), 5.0F);
    ASSERT_EQ(cache.problem(), "");
  }
}

}  // namespace
}  // namespace mt::pjrt
