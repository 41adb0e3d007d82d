// The allocator's own memory.
#pragma once

namespace mt {

// Gives pages that the allocator keeps for later back to the system, where it is tcmalloc: once
// something large is over, such as start-up.
void release_free_memory();

}  // namespace mt
