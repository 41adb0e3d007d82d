#include "base/heap.h"

#include <cstdlib>
#include <new>

extern "C" {
// tcmalloc's, if it is linked.
[[gnu::weak]] void MallocExtension_ReleaseFreeMemory();
}

namespace mt {

void release_free_memory() {
  if (&MallocExtension_ReleaseFreeMemory != nullptr) MallocExtension_ReleaseFreeMemory();
}

std::shared_ptr<std::byte> aligned_memory(size_t bytes) {
  constexpr size_t kLine = 64;
  void* memory = std::aligned_alloc(kLine, (bytes + kLine - 1) / kLine * kLine);
  if (memory == nullptr) throw std::bad_alloc();
  return {static_cast<std::byte*>(memory), std::free};
}

}  // namespace mt
