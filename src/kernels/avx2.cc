// AVX2, FMA and F16C.
#include "kernels/instruction_set.h"
#include "kernels/loops.h"
#include "kernels/ymm.h"

namespace mt::kernels {
namespace {

struct Avx2 : Ymm {
  struct Weights {
    Bytes q, magnitudes;
  };
  // Signed times signed: the weight's sign moves to the activation. Two products of at most 128 and
  // 127 still fit 16 bits.
  static Weights prepare(Bytes q) { return {q, _mm256_abs_epi8(q)}; }
  static Floats dot(Weights w, const uint8_t* x) {
    const Bytes pairs = _mm256_maddubs_epi16(w.magnitudes, _mm256_sign_epi8(load_bytes(x), w.q));
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  static Floats dot_not_negative(Bytes w, const uint8_t* x) {
    const Bytes pairs = _mm256_maddubs_epi16(w, load_bytes(x));
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  static void quantise(const float* x, Rows out, int64_t row) { quantise_row<0>(x, out, row); }
};

}  // namespace

const KernelTable& avx2_kernels() {
  static constexpr KernelTable kTable = make_table<Avx2>();
  return kTable;
}

}  // namespace mt::kernels
