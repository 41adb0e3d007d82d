// Prints what the CPU kernels reach beside what plain loops on as many threads can read, in one
// run: the head of Gemma 3 270M (262144 x 640, Q8_0), then every format, then a layer's products.
// kernels [SET] forces an instruction set: scalar, avx2, avx-vnni, avx512-vnni. `kernels layer`
// measures a layer's products alone.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "checkpoint/gguf_blocks.h"
#include "kernels/products.h"

namespace mt::kernels {
namespace {

constexpr int64_t kHeadRows = 262144, kHeadColumns = 640;

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The fastest run of each body, all in turn for `limit` seconds: what other processes take away is
// not ours, and a quiet moment serves all.
std::vector<double> best_seconds(double limit, const std::vector<std::function<void()>>& bodies) {
  std::vector<double> best(bodies.size(), 1e9);
  double total = 0;
  for (int i = 0; i < 5 || total < limit; ++i) {
    for (size_t j = 0; j < bodies.size(); ++j) {
      const double seconds = seconds_of(bodies[j]);
      if (i > 0) best[j] = std::min(best[j], seconds);
      total += seconds;
    }
  }
  return best;
}

constexpr size_t kAhead = 256;  // words: processors read ahead by themselves, but not past a page

// Eight sums at a time: more than a core's memory accesses need to be kept busy.
uint64_t read_all(const uint64_t* p, size_t count) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 64 <= count; i += 64) {
    for (size_t j = 0; j < 64; j += 8) __builtin_prefetch(p + i + j + kAhead);
    for (size_t j = 0; j < 64; ++j) sums[j % 8] += p[i + j];
  }
  uint64_t all = 0;
  for (const uint64_t s : sums) all += s;
  return all;
}

// Reads all of it with plain loops on the pool's threads.
void read_plainly(Pool& pool, const std::vector<uint8_t>& memory) {
  constexpr int64_t kPieces = 512;
  const size_t share = memory.size() / 8 / kPieces;
  const auto* words = reinterpret_cast<const uint64_t*>(memory.data());
  std::atomic<uint64_t> sum = 0;
  pool.run(kPieces,
           [&](int64_t i, int) { sum += read_all(words + static_cast<size_t>(i) * share, share); });
  if (sum == 1) fmt::print(" ");  // the sum is used
}

struct Shape2 {
  int64_t rows, columns;
};

// out = x w^T, with copies of the weight in turn so that small ones come from memory too.
struct Product {
  const checkpoint::BlockFormat& format;
  Shape2 shape;
  const std::vector<uint8_t>& memory;
  bool packed = false;

  int64_t bytes() const { return shape.rows * shape.columns / format.elements * format.bytes; }
  int64_t copies() const {
    return std::max<int64_t>(1, static_cast<int64_t>(memory.size()) / bytes());
  }
  void run(const Engine& engine, int64_t m, const std::vector<float>& x, float* out) const {
    for (int64_t i = 0; i < copies(); ++i) {
      const uint8_t* data = memory.data() + i * bytes();
      if (format.quantised()) {
        const QuantisedWeight w{&format, data, shape.rows, out, packed};
        quantised_matmul(engine, x.data(), m, shape.columns, {&w, 1});
      } else {
        const FloatWeight w{format.dtype, data, shape.rows, out};
        matvec(engine, x.data(), m, shape.columns, {&w, 1});
      }
    }
  }
};

// One line: for 1, 4 and 16 rows the time and the bytes of weights a second, and for one row the
// share of what plain loops read in the same moments.
void print_product(const Engine& engine, const char* name, Shape2 shape, double limit,
                   const std::vector<uint8_t>& memory, bool packed = false) {
  const auto& format = *checkpoint::find_block_format(std::string_view(name));
  const Product product{format, shape, memory, packed};
  fmt::print("{:>5} {:>6} x {:<4}{}", name, shape.rows, shape.columns, packed ? "p" : " ");
  for (const int64_t m : {1, 4, 8, 16, 512}) {
    const std::vector<float> x(static_cast<size_t>(m * shape.columns), 0.5F);
    constexpr size_t kLine = 64;  // XLA's results begin on a cache line
    std::vector<std::byte> memory_of_out(static_cast<size_t>(m * shape.rows) * 4 + kLine);
    void* aligned = memory_of_out.data();
    size_t space = memory_of_out.size();
    auto* out = static_cast<float*>(std::align(kLine, space - kLine, aligned, space));
    std::vector<std::function<void()>> bodies = {[&] { product.run(engine, m, x, out); }};
    if (m == 1) bodies.emplace_back([&] { read_plainly(engine.pool, memory); });
    const std::vector<double> best = best_seconds(limit, bodies);
    const double bytes = static_cast<double>(product.bytes() * product.copies());
    fmt::print(" | {:>7.3f} ms {:>4.1f} GB/s",
               best[0] / static_cast<double>(product.copies()) * 1e3, bytes / best[0] / 1e9);
    if (m == 1) {
      const double plain = static_cast<double>(memory.size()) / best[1];
      fmt::print(" of {:>4.1f}: {:>3.0f} %", plain / 1e9, 100 * bytes / best[0] / plain);
    }
    std::fflush(stdout);
  }
  fmt::print("\n");
}

// A layer's weights of Gemma 3 270M in both layouts, as they are in the file and packed (p).
void print_layer(const Engine& engine, const std::vector<uint8_t>& memory) {
  const auto both = [&](const char* name, Shape2 shape) {
    print_product(engine, name, shape, 0.5, memory);
    const auto& format = *checkpoint::find_block_format(std::string_view(name));
    if (can_pack(engine, format, shape.rows)) {
      print_product(engine, name, shape, 0.5, memory, true);
    }
  };
  for (const char* name : {"Q5_0", "Q8_0"}) both(name, {2048, 640});
  for (const char* name : {"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"}) both(name, {640, 2048});
}

void measure(const Engine& engine, bool layer_only) {
  // Small numbers of all formats: bytes of 1 and 33 make no scale infinite.
  std::vector<uint8_t> memory(static_cast<size_t>(kHeadRows * kHeadColumns * 34 / 32));
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = i % 3 == 0 ? 33 : 1;
  fmt::print("{} on {} threads; columns: 1 row of x (of plain reading), 4 rows, 16 rows\n",
             name(engine.set), engine.pool.threads());
  if (layer_only) return print_layer(engine, memory);
  print_product(engine, "Q8_0", {kHeadRows, kHeadColumns}, 3, memory);
  for (const char* name : {"Q8_0", "Q4_K", "Q5_K", "Q6_K", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K",
                           "Q3_K", "BF16", "F16", "F32"}) {
    print_product(engine, name, {16384, 2048}, 0.5, memory);
  }
  print_layer(engine, memory);
  print_product(engine, "BF16", {2048, 640}, 0.5, memory);
  print_product(engine, "BF16", {640, 2048}, 0.5, memory);
}

InstructionSet parse_set(std::string_view text) {
  for (const InstructionSet set : supported_instruction_sets()) {
    if (text == name(set)) return set;
  }
  throw fail(ErrorKind::kConfig, "this processor has no instruction set '{}'", text);
}

}  // namespace
}  // namespace mt::kernels

int main(int argc, char** argv) {
  try {
    mt::kernels::Engine engine;
    const bool layer = argc > 1 && std::string_view(argv[1]) == "layer";
    if (argc > 1 && !layer) engine.set = mt::kernels::parse_set(argv[1]);
    mt::kernels::measure(engine, layer);
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    fmt::print(stderr, "kernels: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
