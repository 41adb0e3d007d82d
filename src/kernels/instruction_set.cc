#include "kernels/instruction_set.h"

#include "base/error.h"

namespace mt::kernels {
namespace {

bool supported(InstructionSet set) {
#if defined(MT_KERNELS_X86)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  switch (set) {
    case InstructionSet::kScalar: return true;
    case InstructionSet::kAvx2: return avx2;
    case InstructionSet::kAvxVnni: return avx2 && __builtin_cpu_supports("avxvnni");
    case InstructionSet::kAvx512Vnni:
      return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512vnni");
  }
  return false;
#else
  return set == InstructionSet::kScalar;
#endif
}

}  // namespace

const char* name(InstructionSet set) {
  constexpr const char* kNames[] = {"scalar", "avx2", "avx-vnni", "avx512-vnni"};
  return kNames[static_cast<size_t>(set)];
}

std::vector<InstructionSet> supported_instruction_sets() {
  std::vector<InstructionSet> out;
  for (const InstructionSet set : {InstructionSet::kScalar, InstructionSet::kAvx2,
                                   InstructionSet::kAvxVnni, InstructionSet::kAvx512Vnni}) {
    if (supported(set)) out.push_back(set);
  }
  return out;
}

InstructionSet best_instruction_set() {
  static const InstructionSet best = supported_instruction_sets().back();
  return best;
}

const KernelTable& kernels_for(InstructionSet set) {
  MT_CHECK(supported(set));
#if defined(MT_KERNELS_X86)
  if (set == InstructionSet::kAvx2) return avx2_kernels();
  if (set == InstructionSet::kAvxVnni) return avx_vnni_kernels();
  if (set == InstructionSet::kAvx512Vnni) return avx512_kernels();
#endif
  return scalar_kernels();
}

}  // namespace mt::kernels
