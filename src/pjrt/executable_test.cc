#include "pjrt/executable.h"

#include <gtest/gtest.h>

#include <cmath>

#include "pjrt/test_client.h"

namespace mt::pjrt {
namespace {

TEST(Executable, RunsOnFourDevicesWithDonation) {
  auto client = test_client(4);
  const int64_t before = live_buffers();
  {
    const auto type = array_type(DType::kF32, {64, 128}, fsdp(4), {{{"fsdp"}, {}}});
    const auto weights = array_type(DType::kF32, {128, 128}, fsdp(4), {{{"fsdp"}, {}}});
    Executable run = Executable::compile(client, kShardedProgram, {.num_partitions = 4});
    Tensor x(DType::kF32, {64, 128});
    Tensor w(DType::kF32, {128, 128});
    for (int64_t i = 0; i < 64; ++i) {
      for (int64_t j = 0; j < 128; ++j) {
        x.mutable_data<float>()[static_cast<size_t>(i * 128 + j)] = 0.001F * static_cast<float>(i);
      }
    }
    for (size_t i = 0; i < 128; ++i) w.mutable_data<float>()[i * 129] = 2.0F;  // 2 I
    Array b = Array::from_host(client, w, weights);
    for (int i = 0; i < 100; ++i) {
      Array a = Array::from_host(client, x, type);
      Array* arguments[] = {&a, &b};
      const ArrayTypeRef results[] = {type};
      const int64_t donated[] = {0};
      std::vector<Array> out = run.execute(arguments, results, donated);
      EXPECT_TRUE(a.is_consumed());
      EXPECT_FALSE(b.is_consumed());
      const Tensor y = out[0].to_host();
      ASSERT_EQ(y.shape(), (Shape{64, 128}));
      for (size_t k = 0; k < 64; ++k) {
        ASSERT_NEAR(y.data<float>()[k * 128 + 5], std::tanh(0.002F * static_cast<float>(k)), 1e-6);
      }
    }
  }
  EXPECT_EQ(live_buffers(), before);
}

}  // namespace
}  // namespace mt::pjrt
