// AVX2 with AVX-VNNI: processors without AVX-512 that sum products of bytes in one instruction.
#include "kernels/instruction_set.h"
#include "kernels/loops.h"
#include "kernels/ymm.h"

namespace mt::kernels {
namespace {

struct AvxVnni : Ymm {
  struct Weights {
    Bytes q, start;
  };
  // Activations are stored with 128 added; the sum starts at -128 times the weights.
  static Weights prepare(Bytes q) {
    const Bytes none = _mm256_setzero_si256();
    return {q, _mm256_sub_epi32(none, _mm256_dpbusd_avx_epi32(none, all(128), q))};
  }
  static Floats dot(Weights w, const uint8_t* x) {
    return _mm256_cvtepi32_ps(_mm256_dpbusd_avx_epi32(w.start, load_bytes(x), w.q));
  }
  static Floats dot_not_negative(Bytes w, const uint8_t* x) {
    const Bytes signed_x = _mm256_xor_si256(load_bytes(x), all(128));
    return _mm256_cvtepi32_ps(_mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), w, signed_x));
  }
  static void quantise(const float* x, Rows out, int64_t row) { quantise_row<128>(x, out, row); }
};

}  // namespace

const KernelTable& avx_vnni_kernels() {
  static constexpr KernelTable kTable = make_table<AvxVnni>();
  return kTable;
}

}  // namespace mt::kernels
