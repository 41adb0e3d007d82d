// Counter-based random numbers (Threefry-2x32, 20 rounds). The value of an element depends on the
// key and on its index only, so that any device or process can make any part of a stream.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace mt {

using RandomKey = std::array<uint32_t, 2>;

// JAX's PRNGKey(seed): the high and the low word of the seed.
RandomKey random_key(uint64_t seed);

// One block of the cipher: encrypts the counter under the key.
std::array<uint32_t, 2> threefry2x32(RandomKey key, uint32_t counter0, uint32_t counter1);

// Element `index` of the stream of a key: both output words of block (index >> 32, index) xored.
// This is jax.random.bits with jax_threefry_partitionable.
uint32_t random_bits_at(RandomKey key, uint64_t index);
std::vector<uint32_t> random_bits(RandomKey key, uint64_t count);  // elements 0 .. count-1

// JAX's fold_in: a new key from a key and a number (a step, an epoch).
RandomKey fold_in(RandomKey key, uint32_t data);

}  // namespace mt
