// A loop over ranges on the machine's cores.
#pragma once

#include <cstdint>
#include <functional>

namespace mt::checkpoint {

// Calls work(begin, end) over [0, count) in pieces of `grain` (the last may be shorter), from
// several threads at once. Rethrows the first exception once every thread has stopped.
void parallel_ranges(int64_t count, int64_t grain,
                     const std::function<void(int64_t begin, int64_t end)>& work);

}  // namespace mt::checkpoint
