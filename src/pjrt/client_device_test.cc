#include "pjrt/client.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file.h"
#include "pjrt/test_client.h"

namespace mt::pjrt {
namespace {

std::string load_error(const std::string& name) {
  return error_of([&] { Plugin::load(name); });
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Client, DescribesItsDevices) {
  auto client = test_client(3);
  EXPECT_EQ(client->platform_name(), "cpu");
  EXPECT_NE(client->platform_version(), "");
  ASSERT_EQ(client->devices().size(), 3U);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client->devices()[static_cast<size_t>(i)].id, i);
    EXPECT_EQ(client->devices()[static_cast<size_t>(i)].kind, "cpu");
    EXPECT_NE(client->devices()[static_cast<size_t>(i)].description, "");
  }
  EXPECT_EQ(client->memory_stats(0), std::nullopt);  // XLA's CPU devices keep none
  EXPECT_EQ(error_of([&] { client->memory_stats(3); }), "device: device 3 of 3 asked for");
}

TEST(Client, SeveralMayLiveAtOnce) {
  auto two = test_client(2);
  auto one = test_client(1);
  EXPECT_EQ(two->devices().size(), 2U);
  EXPECT_EQ(one->devices().size(), 1U);
  EXPECT_EQ(&two->plugin(), &one->plugin());
}

TEST(Client, RefusesBadDeviceCounts) {
  EXPECT_EQ(error_of([] { test_client(-1); }), "config: cannot make a client with -1 devices");
  EXPECT_EQ(error_of([] { test_client(5000); }),
            "config: 5000 CPU devices asked for, at most 1024 can be made");
}

TEST(Plugin, LoadsByNameAndByFile) {
  ::setenv("MAXTEXT_DEPS", MT_DEPS, 1);
  const auto path = find_plugin("cpu");
  ASSERT_TRUE(path.has_value());
  EXPECT_EQ(Plugin::load(*path), Plugin::load("cpu"));
  EXPECT_TRUE(has(Plugin::load("cpu")->api_version(), "0."));
  ::setenv("MAXTEXT_PJRT_OTHER", path->c_str(), 1);
  EXPECT_EQ(Plugin::load("other"), Plugin::load("cpu"));
  ::setenv("MAXTEXT_PJRT_OTHER", "/nowhere/x.so", 1);
  EXPECT_EQ(find_plugin("other"), std::nullopt);
  EXPECT_EQ(
      load_error("other"),
      "device: PJRT plugin 'other': $MAXTEXT_PJRT_OTHER names /nowhere/x.so, which is not there");
  ::unsetenv("MAXTEXT_PJRT_OTHER");
}

TEST(Plugin, SaysWhereItLookedAndHowToGetIt) {
  const TestFolder folder;
  ::setenv("MAXTEXT_DEPS", folder.path().c_str(), 1);
  EXPECT_EQ(find_plugin("tpu"), std::nullopt);
  const std::string cuda = load_error("gpu");
  EXPECT_TRUE(cuda.starts_with("device: PJRT plugin 'cuda' not found: tried $MAXTEXT_PJRT_CUDA, " +
                               folder.path() + "/pjrt/cuda, "))
      << cuda;
  EXPECT_TRUE(has(cuda, "jax-cuda13-pjrt")) << cuda;
  EXPECT_TRUE(has(load_error("tpu"), "libtpu"));
  EXPECT_TRUE(has(load_error("cpux"), "the names known are cpu, cuda and tpu"));
  ::setenv("MAXTEXT_DEPS", MT_DEPS, 1);
}

TEST(Plugin, RefusesFilesThatAreNone) {
  const TestFolder folder;
  const std::string text = folder.path() + "/text.so";
  write_file(text, "this is not a shared library");
  EXPECT_TRUE(load_error(text).starts_with("device: " + text + ": not a PJRT plugin that loads"))
      << load_error(text);
  write_file(text, "");
  EXPECT_TRUE(has(load_error(text), "not a PJRT plugin"));
  EXPECT_EQ(load_error(folder.path() + "/none.so"),
            fmt::format("device: {}/none.so: no such PJRT plugin file", folder.path()));
  EXPECT_TRUE(has(load_error(folder.path()), "not a regular file"));
  const std::string fifo = folder.path() + "/fifo.so";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_TRUE(has(load_error(fifo), "not a regular file"));
  Dl_info info{};  // a shared library that is surely there
  ASSERT_NE(::dladdr(reinterpret_cast<void*>(&::strtol), &info), 0);
  EXPECT_TRUE(has(load_error(info.dli_fname), "it has no GetPjrtApi"))
      << load_error(info.dli_fname);
}

}  // namespace
}  // namespace mt::pjrt
