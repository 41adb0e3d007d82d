// Prints what a plain float32 matrix product reaches through the PJRT plugin, as one JSON line:
// the machine's peak against which bench/peak holds a training step. Best and median of the runs.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "base/error.h"
#include "pjrt/array.h"
#include "pjrt/client.h"
#include "pjrt/executable.h"

namespace mt {
namespace {

constexpr int64_t kSize = 2048;  // three 16 MiB matrices: well past L2, 17 GFLOP a product
constexpr int kRuns = 12;

std::string product_program() {
  const std::string type = fmt::format("tensor<{0}x{0}xf32>", kSize);
  return fmt::format(
      "module @product {{ func.func public @main(%a: {0}, %b: {0}) -> {0} {{\n"
      "  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({0}, {0}) -> {0}\n"
      "  return %0 : {0} }} }}",
      type);
}

Tensor ramp(float step) {  // nothing that a clever kernel could skip
  Tensor t(DType::kF32, {kSize, kSize});
  float value = -1.0F;
  for (float& x : t.mutable_data<float>()) {
    x = value;
    value = value > 1.0F ? -1.0F : value + step;
  }
  return t;
}

double seconds_of_one(const pjrt::Executable& program, pjrt::Array& a, pjrt::Array& b) {
  pjrt::Array* arguments[] = {&a, &b};
  const pjrt::ArrayTypeRef results[] = {a.type_ref()};
  const auto start = std::chrono::steady_clock::now();
  program.execute(arguments, results)[0].await();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void measure(const std::string& platform) {
  const auto client = pjrt::Client::create({.platform = platform, .device_count = 1});
  const auto program = pjrt::Executable::compile(client, product_program(), {});
  pjrt::Array a = pjrt::Array::from_host(client, ramp(0.001F));
  pjrt::Array b = pjrt::Array::from_host(client, ramp(0.0007F));
  seconds_of_one(program, a, b);  // the first one also starts threads and touches new pages
  std::vector<double> seconds;
  for (int i = 0; i < kRuns; ++i) seconds.push_back(seconds_of_one(program, a, b));
  std::sort(seconds.begin(), seconds.end());
  const double gflop = 2e-9 * static_cast<double>(kSize * kSize * kSize);
  fmt::print("{{\"size\": {}, \"best_gflops\": {:.1f}, \"median_gflops\": {:.1f}}}\n", kSize,
             gflop / seconds.front(), gflop / seconds[seconds.size() / 2]);
}

}  // namespace
}  // namespace mt

int main(int argc, char** argv) {
  try {
    mt::measure(argc > 1 ? argv[1] : "cpu");
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    fmt::print(stderr, "matmul_peak: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
