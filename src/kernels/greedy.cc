#include "kernels/greedy.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace mt::kernels {

void greedy(const Engine& engine, const float* logits, int64_t rows, int64_t vocabulary,
            int32_t* token, float* log_prob) {
  constexpr int64_t kPiece = 8192;
  const int64_t pieces = (vocabulary + kPiece - 1) / kPiece;
  const KernelTable& table = kernels_for(engine.set);
  std::vector<Largest> found(static_cast<size_t>(rows * pieces));
  engine.pool.run(rows * pieces, [&](int64_t i, int) {
    const int64_t begin = i % pieces * kPiece;
    const float* row = logits + i / pieces * vocabulary;
    found[static_cast<size_t>(i)] =
        table.largest(row + begin, std::min(kPiece, vocabulary - begin));
  });
  for (int64_t row = 0; row < rows; ++row) {
    const Largest* piece = found.data() + row * pieces;
    int64_t best = 0;
    for (int64_t p = 1; p < pieces; ++p) {
      if (piece[p].value > piece[best].value) best = p;
    }
    float sum = 0;
    for (int64_t p = 0; p < pieces; ++p) {
      sum += piece[p].sum * std::exp(piece[p].value - piece[best].value);
    }
    token[row] = static_cast<int32_t>(best * kPiece + piece[best].index);
    log_prob[row] = -std::log(sum);
  }
}

}  // namespace mt::kernels
