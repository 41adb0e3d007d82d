// Prints what the CPU kernels reach beside what the machine can read, in one run: first the bytes a
// second that plain loops read on as many threads, then each format's product with a large matrix
// (the head of Gemma 3 270M: 262144 x 640), then products of a layer's size with 1, 4 and 16 rows.
// kernels [SET] forces an instruction set: scalar, avx2, avx-vnni, avx512-vnni.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "checkpoint/gguf_blocks.h"
#include "kernels/products.h"

namespace mt::kernels {
namespace {

constexpr int64_t kHeadRows = 262144, kHeadColumns = 640;

// Of many runs over half a second the fastest: what other processes take away is not ours.
template <typename Body>
double best_seconds(const Body& body) {
  body();
  double best = 1e9, total = 0;
  for (int i = 0; i < 5 || total < 0.5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

// Eight sums at a time: more than a core's memory accesses need to be kept busy.
uint64_t read_all(const uint64_t* p, size_t count) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 64 <= count; i += 64) {
    for (size_t j = 0; j < 64; ++j) sums[j % 8] += p[i + j];
  }
  uint64_t all = 0;
  for (const uint64_t s : sums) all += s;
  return all;
}

double read_bandwidth(const std::vector<uint8_t>& memory, int threads) {
  const auto* words = reinterpret_cast<const uint64_t*>(memory.data());
  const size_t share = memory.size() / 8 / static_cast<size_t>(threads);
  std::vector<uint64_t> sums(static_cast<size_t>(threads));
  const double seconds = best_seconds([&] {
    std::vector<std::jthread> others;
    for (size_t i = 0; i < sums.size(); ++i) {
      others.emplace_back([&, i] { sums[i] = read_all(words + i * share, share); });
    }
  });
  if (sums[0] == 1) fmt::print(" ");  // the sums are used
  return static_cast<double>(memory.size()) / seconds / 1e9;
}

struct Shape2 {
  int64_t rows, columns;
};

// Times out = x w^T; `copies` of the weight in turn, so that small ones come from memory too.
double product_seconds(const Engine& engine, const checkpoint::BlockFormat& format, Shape2 shape,
                       int64_t m, const std::vector<uint8_t>& memory) {
  const int64_t bytes = shape.rows * shape.columns / format.elements * format.bytes;
  const int64_t copies = std::max<int64_t>(1, static_cast<int64_t>(memory.size()) / bytes);
  const std::vector<float> x(static_cast<size_t>(m * shape.columns), 0.5F);
  std::vector<float> out(static_cast<size_t>(m * shape.rows));
  const double seconds = best_seconds([&] {
    for (int64_t i = 0; i < copies; ++i) {
      const uint8_t* data = memory.data() + i * bytes;
      if (format.quantised()) {
        const QuantisedWeight w{&format, data, shape.rows, out.data()};
        quantised_matmul(engine, x.data(), m, shape.columns, {&w, 1});
      } else {
        const FloatWeight w{format.dtype, data, shape.rows, out.data()};
        matvec(engine, x.data(), m, shape.columns, {&w, 1});
      }
    }
  });
  return seconds / static_cast<double>(copies);
}

void print_product(const Engine& engine, const char* name, Shape2 shape, double limit,
                   const std::vector<uint8_t>& memory) {
  const auto& format = *checkpoint::find_block_format(std::string_view(name));
  fmt::print("{:>6} {:>6} x {:<5}", name, shape.rows, shape.columns);
  const double bytes =
      static_cast<double>(shape.rows * shape.columns / format.elements * format.bytes);
  for (const int64_t m : {1, 4, 16}) {
    const double seconds = product_seconds(engine, format, shape, m, memory);
    const double rate = bytes / seconds / 1e9;
    fmt::print("  | {:>2}: {:>8.3f} ms {:>6.1f} GB/s {:>4.0f} %", m, seconds * 1e3, rate,
               100 * rate / limit);
    std::fflush(stdout);
  }
  fmt::print("\n");
}

void measure(const Engine& engine) {
  // Small numbers of all formats: bytes of 1 and 33 make no scale infinite.
  std::vector<uint8_t> memory(static_cast<size_t>(kHeadRows * kHeadColumns * 34 / 32));
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = i % 3 == 0 ? 33 : 1;
  const int threads = engine.pool.threads();
  fmt::print("instruction set {}, {} threads\n", name(engine.set), threads);
  const double limit = read_bandwidth(memory, threads);
  fmt::print("plain reading of {} MB: {:.1f} GB/s on {} threads, {:.1f} on one\n",
             memory.size() / 1000000, limit, threads, read_bandwidth(memory, 1));
  fmt::print("products: rows of x: time, bytes of weights a second, share of plain reading\n");
  print_product(engine, "Q8_0", {kHeadRows, kHeadColumns}, limit, memory);
  for (const char* name : {"Q8_0", "Q4_K", "Q5_K", "Q6_K", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K",
                           "Q3_K", "BF16", "F16", "F32"}) {
    print_product(engine, name, {16384, 2048}, limit, memory);
  }
  for (const char* name : {"Q5_0", "Q8_0", "BF16"}) {
    print_product(engine, name, {2048, 640}, limit, memory);
  }
  for (const char* name : {"Q4_K", "Q6_K", "BF16"}) {
    print_product(engine, name, {640, 2048}, limit, memory);
  }
  fmt::print("plain reading again: {:.1f} GB/s\n", read_bandwidth(memory, threads));
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
    if (argc > 1) engine.set = mt::kernels::parse_set(argv[1]);
    mt::kernels::measure(engine);
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    fmt::print(stderr, "kernels: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
