#include "base/random.h"

#include <gtest/gtest.h>

namespace mt {
namespace {

// The three known-answer vectors of the Random123 distribution for Threefry-2x32, 20 rounds.
TEST(Random, ThreefryKnownAnswers) {
  using Block = std::array<uint32_t, 2>;
  EXPECT_EQ(threefry2x32({0, 0}, 0, 0), (Block{0x6b200159, 0x99ba4efe}));
  EXPECT_EQ(threefry2x32({0xffffffff, 0xffffffff}, 0xffffffff, 0xffffffff),
            (Block{0x1cb996fc, 0xbb002be7}));
  EXPECT_EQ(threefry2x32({0x13198a2e, 0x03707344}, 0x243f6a88, 0x85a308d3),
            (Block{0xc4923a9c, 0x483df7a0}));
}

TEST(Random, ElementDependsOnIndexOnly) {
  const RandomKey key = random_key(0x0123456789abcdefULL);
  EXPECT_EQ(key, (RandomKey{0x01234567, 0x89abcdef}));
  const auto bits = random_bits(key, 100);
  EXPECT_EQ(bits, [&] {
    auto longer = random_bits(key, 1000);
    longer.resize(100);
    return longer;
  }());
  EXPECT_EQ(bits[77], random_bits_at(key, 77));
  const auto block = threefry2x32(key, 3, 5);
  EXPECT_EQ(random_bits_at(key, (uint64_t{3} << 32) | 5), block[0] ^ block[1]);
  EXPECT_NE(fold_in(key, 0), fold_in(key, 1));
}

}  // namespace
}  // namespace mt
