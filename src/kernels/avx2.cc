// AVX2, FMA and F16C.
#include "kernels/instruction_set.h"
#include "kernels/loops.h"
#include "kernels/ymm_panels.h"

namespace mt::kernels {
namespace {

struct Avx2 : Ymm {
  static Floats dot(Pair w, const int16_t* x) {
    const Bytes even = _mm256_madd_epi16(w.even, load_bytes(x));
    const Bytes odd = _mm256_madd_epi16(w.odd, load_bytes(x + Activations::kOdd));
    return _mm256_cvtepi32_ps(_mm256_add_epi32(even, odd));
  }
  static void add_pairs(Bytes& sum, Bytes w, Bytes x) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(w, x));
  }
  static void quantise(const float* x, Activations out, int64_t row) { quantise_row(x, out, row); }
};

}  // namespace

const KernelTable& avx2_kernels() {
  static constexpr KernelTable kTable = make_ymm_table<Avx2>();
  return kTable;
}

}  // namespace mt::kernels
