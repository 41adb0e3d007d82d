// AVX2 with AVX-VNNI: processors without AVX-512 that multiply and sum 16-bit integers in one
// instruction.
#include "kernels/instruction_set.h"
#include "kernels/loops.h"
#include "kernels/ymm_panels.h"

namespace mt::kernels {
namespace {

struct AvxVnni : Ymm {
  static Floats dot(Pair w, const int16_t* x) {
    const Bytes even = _mm256_dpwssd_avx_epi32(_mm256_setzero_si256(), w.even, load_bytes(x));
    const Bytes both = _mm256_dpwssd_avx_epi32(even, w.odd, load_bytes(x + Activations::kOdd));
    return _mm256_cvtepi32_ps(both);
  }
  static void add_pairs(Bytes& sum, Bytes w, Bytes x) { sum = _mm256_dpwssd_avx_epi32(sum, w, x); }
  static void quantise(const float* x, Activations out, int64_t row) { quantise_row(x, out, row); }
};

}  // namespace

const KernelTable& avx_vnni_kernels() {
  static constexpr KernelTable kTable = make_ymm_table<AvxVnni>();
  return kTable;
}

}  // namespace mt::kernels
