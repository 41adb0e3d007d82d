#include "pjrt/array.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "pjrt/test_client.h"

namespace mt::pjrt {
namespace {

using sharding::Mesh;
using sharding::PartitionSpec;

constexpr DType kAll[] = {DType::kPred, DType::kS8,  DType::kS32, DType::kS64,
                          DType::kU8,   DType::kU32, DType::kU64, DType::kF16,
                          DType::kBF16, DType::kF32, DType::kF64};

// Different bytes everywhere; 0 and 1 only for bools.
Tensor pattern(DType dtype, const Shape& shape) {
  Tensor t(dtype, shape);
  uint32_t state = 12345;
  for (std::byte& b : t.mutable_bytes()) {
    state = state * 1664525U + 1013904223U;
    b = static_cast<std::byte>(dtype == DType::kPred ? state >> 31 : state >> 24);
  }
  return t;
}

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin(), b.bytes().end());
}

const Mesh kMesh{{{"data", 2}, {"stage", 1}, {"fsdp", 2}, {"tensor", 2}}};

const PartitionSpec kSpecs[] = {
    {},
    {{{}, {}, {}}},
    {{{"fsdp"}, {}, {}}},
    {{{}, {"fsdp"}, {}}},
    {{{}, {}, {"tensor"}}},
    {{{"data"}, {"fsdp"}, {"tensor"}}},
    {{{"fsdp", "tensor", "data"}, {}, {}}},
    {{{"tensor"}, {}, {"fsdp", "data"}}},
    {{{"stage"}, {"data", "stage"}, {}}},
};

TEST(Array, RoundTripsEveryDtypeAndSharding) {
  auto client = test_client(8);
  const int64_t before = live_buffers();
  for (const DType dtype : kAll) {
    const Tensor t = pattern(dtype, {8, 6, 4});
    for (const PartitionSpec& spec : kSpecs) {
      for (const HostMemory memory : {HostMemory::kCopy, HostMemory::kZeroCopy}) {
        const auto type = array_type(dtype, t.shape(), kMesh, spec);
        const Array a = Array::from_host(client, t, type, memory);
        EXPECT_EQ(live_buffers(), before + 8);
        EXPECT_TRUE(same(a.to_host(), t)) << name(dtype) << " " << to_string(spec);
        for (int64_t d = 0; d < 8; ++d) {
          const auto start = sharding::shard_start(kMesh, spec, t.shape(), d);
          const Tensor shard = t.slice(start, type->shard_shape());
          EXPECT_TRUE(same(a.shard_to_host(d), shard)) << name(dtype) << " " << to_string(spec);
        }
      }
    }
  }
  EXPECT_EQ(live_buffers(), before);
}

TEST(Array, RoundTripsScalarsAndEmptyArrays) {
  auto client = test_client(2);
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{0}, Shape{3, 0, 2}, Shape{1, 1, 5}}) {
    for (const Mesh& mesh : {Mesh{}, fsdp(2)}) {
      const Tensor t = pattern(DType::kBF16, shape);
      EXPECT_TRUE(same(Array::from_host(client, t, mesh).to_host(), t)) << to_string(shape);
    }
  }
}

TEST(Array, ShardsHoldTheirShareOnly) {
  auto client = test_client(4);
  const Tensor t = pattern(DType::kF32, {64, 128});
  const Array sharded = Array::from_host(client, t, fsdp(4), {{{"fsdp"}, {}}});
  const Array whole = Array::from_host(client, t, fsdp(4));
  for (int64_t d = 0; d < 4; ++d) {
    EXPECT_EQ(sharded.bytes_on_device(d), 64 * 128 * 4 / 4);
    EXPECT_EQ(whole.bytes_on_device(d), 64 * 128 * 4);
  }
}

TEST(Array, IsBuiltShardByShard) {
  auto client = test_client(4);
  const auto type = array_type(DType::kS32, {8, 3}, fsdp(4), {{{"fsdp"}, {}}});
  std::vector<int64_t> asked;
  const Array a = Array::from_shards(client, type, [&](int64_t device) {
    asked.push_back(device);
    Tensor t(DType::kS32, {2, 3});
    for (int32_t& x : t.mutable_data<int32_t>()) x = static_cast<int32_t>(device);
    return t;
  });
  EXPECT_EQ(asked, (std::vector<int64_t>{0, 1, 2, 3}));
  const Tensor whole = a.to_host();
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(whole.data<int32_t>()[i], static_cast<int32_t>(i / 6));
  EXPECT_EQ(error_of([&] {
              Array::from_shards(client, type, [](int64_t) { return Tensor(DType::kS32, {3, 2}); });
            }),
            "shape: expected int32[2, 3] for the device, got int32[3, 2]");
}

TEST(Array, OutlivesTheTensorAndTheClientsOtherOwners) {
  auto client = test_client(4);
  Array a;
  {
    const Tensor t = pattern(DType::kU8, {4096, 1024});
    a = Array::from_host(client, t, array_type(t.dtype(), t.shape(), fsdp(4), {{{}, {"fsdp"}}}),
                         HostMemory::kZeroCopy);
  }
  client.reset();
  EXPECT_TRUE(same(a.to_host(), pattern(DType::kU8, {4096, 1024})));
}

// Aligned host bytes are used in place and given back when the buffer goes.
TEST(Array, ZeroCopyKeepsTheTensorUntilTheBufferGoes) {
  auto client = test_client(1);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(4096, 1 << 20));
  std::memset(memory, 7, 1 << 20);
  bool freed = false;
  {
    Array a;
    {
      const std::shared_ptr<const void> owner(memory, [&freed](const void* p) {
        freed = true;
        std::free(const_cast<void*>(p));
      });
      const Tensor t(DType::kU8, {1 << 20}, {memory, 1 << 20}, owner);
      a = Array::from_host(client, t, array_type(DType::kU8, {1 << 20}), HostMemory::kZeroCopy);
    }
    a.await();
    EXPECT_FALSE(freed);
    memory[5] = std::byte{9};  // only to see whether the bytes are shared
    EXPECT_EQ(a.to_host().data<uint8_t>()[5], 9);
  }
  EXPECT_TRUE(freed);
}

TEST(Array, RefusesWhatDoesNotFit) {
  auto client = test_client(2);
  const Tensor t = pattern(DType::kF32, {6, 4});
  EXPECT_EQ(error_of([&] { Array::from_host(client, t, fsdp(4)); }),
            "config: a mesh of 4 devices on a client with 2");
  EXPECT_EQ(error_of([&] {
              Array::from_host(client, pattern(DType::kF32, {5}), fsdp(2), {{{"fsdp"}}});
            }).substr(0, 8),
            "config: ");
  EXPECT_EQ(error_of([&] {
              Array::from_host(client, t, array_type(DType::kF32, {4, 6}));
            }),
            "shape: expected float32[4, 6] for the device, got float32[6, 4]");
  EXPECT_NE(error_of([] { Array().to_host(); }), "");
}

}  // namespace
}  // namespace mt::pjrt
