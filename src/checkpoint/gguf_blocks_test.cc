#include "checkpoint/gguf_blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "base/file.h"

namespace mt::checkpoint {
namespace {

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }

class Blocks : public ::testing::TestWithParam<const char*> {};

// Against the `gguf` Python package, to the last bit.
TEST_P(Blocks, EqualTheReference) {
  const BlockFormat* format = find_block_format(std::string_view(GetParam()));
  ASSERT_NE(format, nullptr);
  const std::string file =
      read_file(std::string(MT_SOURCE_DIR "/tests/golden/gguf_blocks/") + GetParam() + ".bin");
  uint32_t blocks = 0;
  ASSERT_GT(file.size(), sizeof(blocks));
  std::memcpy(&blocks, file.data(), sizeof(blocks));
  const size_t encoded = static_cast<size_t>(format->bytes) * blocks;
  const size_t values = static_cast<size_t>(format->elements) * blocks;
  ASSERT_EQ(file.size(), sizeof(blocks) + encoded + values * sizeof(float));
  std::vector<float> expected(values), found(values, -1.0F);
  std::memcpy(expected.data(), file.data() + sizeof(blocks) + encoded, values * sizeof(float));
  format->to_float(reinterpret_cast<const std::byte*>(file.data() + sizeof(blocks)), blocks,
                   found.data());
  for (size_t i = 0; i < values; ++i) {
    ASSERT_EQ(bits(found[i]), bits(expected[i]))
        << "element " << i << ": " << found[i] << ", expected " << expected[i];
  }
}

INSTANTIATE_TEST_SUITE_P(All, Blocks,
                         ::testing::Values("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0",
                                           "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
                         [](const auto& param) { return std::string(param.param); });

TEST(BlockFormat, UnknownIsNull) {
  EXPECT_EQ(find_block_format(uint32_t{16}), nullptr);  // IQ2_XXS
  EXPECT_EQ(find_block_format(std::string_view("F8_E4M3")), nullptr);
}

// One block by hand, so that the layout is also checked without the reference's help.
TEST(BlockFormat, Q4_1ByHand) {
  std::vector<std::byte> block(20);
  const uint16_t scale = 0x3800, minimum = 0xbc00;  // 0.5, -1
  std::memcpy(block.data(), &scale, 2);
  std::memcpy(block.data() + 2, &minimum, 2);
  block[4] = std::byte{0xf3};  // element 0 is 3, element 16 is 15
  std::vector<float> out(32);
  find_block_format(std::string_view("Q4_1"))->to_float(block.data(), 1, out.data());
  EXPECT_EQ(out[0], 0.5F);
  EXPECT_EQ(out[16], 6.5F);
  EXPECT_EQ(out[1], -1.0F);
}

}  // namespace
}  // namespace mt::checkpoint
