#include "base/random.h"

#include <bit>

namespace mt {
namespace {

constexpr uint32_t kParity = 0x1BD11BDA;
constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};

uint32_t low_word(uint64_t x) { return static_cast<uint32_t>(x & 0xffffffffU); }

}  // namespace

RandomKey random_key(uint64_t seed) { return {low_word(seed >> 32), low_word(seed)}; }

std::array<uint32_t, 2> threefry2x32(RandomKey key, uint32_t counter0, uint32_t counter1) {
  const uint32_t schedule[3] = {key[0], key[1], key[0] ^ key[1] ^ kParity};
  uint32_t x0 = counter0 + schedule[0];
  uint32_t x1 = counter1 + schedule[1];
  for (uint32_t group = 0; group < 5;
       ++group) {  // 5 groups of 4 rounds, a key injection after each
    for (const int rotation : kRotations[group % 2]) {
      x0 += x1;
      x1 = std::rotl(x1, rotation) ^ x0;
    }
    x0 += schedule[(group + 1) % 3];
    x1 += schedule[(group + 2) % 3] + group + 1;
  }
  return {x0, x1};
}

uint32_t random_bits_at(RandomKey key, uint64_t index) {
  const auto block = threefry2x32(key, low_word(index >> 32), low_word(index));
  return block[0] ^ block[1];
}

std::vector<uint32_t> random_bits(RandomKey key, uint64_t count) {
  std::vector<uint32_t> bits(count);
  for (uint64_t i = 0; i < count; ++i) bits[i] = random_bits_at(key, i);
  return bits;
}

RandomKey fold_in(RandomKey key, uint32_t data) { return threefry2x32(key, 0, data); }

}  // namespace mt
