#include "base/heap.h"

extern "C" {
// tcmalloc's, if it is linked.
[[gnu::weak]] void MallocExtension_ReleaseFreeMemory();
}

namespace mt {

void release_free_memory() {
  if (&MallocExtension_ReleaseFreeMemory != nullptr) MallocExtension_ReleaseFreeMemory();
}

}  // namespace mt
