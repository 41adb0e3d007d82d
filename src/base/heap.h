// The allocator's own memory.
#pragma once

#include <cstddef>
#include <memory>

namespace mt {

// Gives pages that the allocator keeps for later back to the system, where it is tcmalloc: once
// something large is over, such as start-up.
void release_free_memory();

// Uninitialised memory on a cache line, which a device can read in place. Throws std::bad_alloc.
std::shared_ptr<std::byte> aligned_memory(size_t bytes);

}  // namespace mt
