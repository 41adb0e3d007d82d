// Which processor features kernels may use, found out at run time.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernel_table.h"

namespace mt::kernels {

enum class InstructionSet : uint8_t {
  kScalar,      // whatever the program is compiled for
  kAvx2,        // AVX2, FMA, F16C
  kAvxVnni,     // the same and AVX-VNNI
  kAvx512Vnni,  // AVX-512 F, BW, DQ, VL and VNNI
};

const char* name(InstructionSet set);
// Those that this processor has, the best last.
std::vector<InstructionSet> supported_instruction_sets();
InstructionSet best_instruction_set();
// Only for a set that is supported.
const KernelTable& kernels_for(InstructionSet set);

// Each in its own file, which is compiled with the set's flags.
const KernelTable& scalar_kernels();
const KernelTable& avx2_kernels();
const KernelTable& avx_vnni_kernels();
const KernelTable& avx512_kernels();

}  // namespace mt::kernels
