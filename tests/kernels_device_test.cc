// CPU kernels called by compiled programs: graph -> StableHLO -> the real plugin -> handler.
#include <gtest/gtest.h>

#include <thread>

#include "base/random.h"
#include "checkpoint/gguf_blocks.h"
#include "ir/ops.h"
#include "kernels/call.h"
#include "kernels/kernels.h"
#include "pjrt/ffi.h"
#include "support/run_graph.h"

namespace mt::kernels {
namespace {

using checkpoint::BlockFormat;
using checkpoint::find_block_format;
using ir::Type;
using testing::client;
using testing::error_of;
using testing::run;
using testing::values_of;

// y = k x, called with an attribute of each kind.
void multiply_by_k(const Call& call) {
  const Operand x = call.argument(0);
  const int64_t k = call.integer("k");
  for (int64_t i = 0; i < x.rows() * x.last(); ++i) {
    static_cast<float*>(call.result(0).data)[i] =
        static_cast<float*>(x.data)[i] * static_cast<float>(k);
  }
}

void register_multiply_by_k() {
  const auto handler = [](ffi::CallFrame* frame) { return run_handler(frame, multiply_by_k); };
  static const bool registered = [&] {
    ffi::Handler* pointer = handler;
    pjrt::register_ffi_handler(*client(), "test_multiply_by_k", "Host",
                               reinterpret_cast<void*>(pointer));
    return true;
  }();
  EXPECT_TRUE(registered);
}

std::vector<Tensor> call(const ir::CustomCallInfo& info, const std::vector<Tensor>& operands,
                         const std::vector<Type>& results) {
  register_cpu_handlers(*client());
  ir::Graph g;
  std::vector<ir::Value> values;
  for (const Tensor& t : operands) values.push_back(g.parameter({t.dtype(), t.shape()}));
  g.outputs = ir::custom_call(g, info, values, results);
  return run(g, operands);
}

std::string call_error(const ir::CustomCallInfo& info, const std::vector<Tensor>& operands,
                       const std::vector<Type>& results) {
  const std::string text = error_of([&] { call(info, operands, results); });
  const std::string start = "running a program: ";
  return text.starts_with(start) ? text.substr(start.size()) : text;
}

Tensor floats(const Shape& shape, uint64_t seed) {
  Tensor t(DType::kF32, shape);
  uint64_t i = 0;
  for (float& x : t.mutable_data<float>()) {
    x = static_cast<float>(random_bits_at(random_key(seed), i++)) * 0x1p-31F - 1.0F;
  }
  return t;
}

// Random blocks whose 16-bit scales are small numbers.
Tensor random_blocks(const BlockFormat& format, int64_t rows, int64_t k, uint64_t seed) {
  Tensor t(DType::kU8, {rows, k / format.elements * format.bytes});
  auto bytes = t.mutable_data<uint8_t>();
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(random_bits_at(random_key(seed), i));
  }
  const size_t scale = format.name == "Q6_K" ? 208 : 0;
  const bool minimum = format.name == "Q4_1" || format.name == "Q4_K";
  for (size_t block = 0; block < bytes.size(); block += static_cast<size_t>(format.bytes)) {
    bytes[block + scale + 1] = 0x20;  // 2^-7 to 2^-6
    if (minimum) bytes[block + scale + 3] = 0x20;
  }
  return t;
}

std::vector<float> decoded(const BlockFormat& format, const Tensor& blocks) {
  const int64_t count = blocks.size() / format.bytes;
  std::vector<float> out(static_cast<size_t>(count * format.elements));
  format.to_float(blocks.bytes().data(), count, out.data());
  return out;
}

TEST(KernelsDevice, AProgramCallsAHandler) {
  register_multiply_by_k();
  const Tensor x = floats({3, 5}, 1);
  const auto y = call({.target = "test_multiply_by_k", .integers = {{"j", 9}, {"k", -3}}}, {x},
                      {{DType::kF32, {3, 5}}});
  for (size_t i = 0; i < 15; ++i) EXPECT_EQ(y[0].data<float>()[i], -3 * x.data<float>()[i]);
  EXPECT_EQ(call_error({.target = "test_multiply_by_k"}, {x}, {{DType::kF32, {3, 5}}}),
            "attribute k is missing");
  EXPECT_EQ(call_error({.target = "test_multiply_by_k", .floats = {{"k", 1}}}, {x},
                       {{DType::kF32, {3, 5}}}),
            "attribute k is not an i64");
}

TEST(KernelsDevice, RegisteringIsForOnceAndFromAnyThread) {
  const auto one = client();
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { register_cpu_handlers(*one); });
  threads.clear();
  register_cpu_handlers(*client(4));  // another client of the same plugin
}

TEST(KernelsDevice, DequantisesToFloat32AndBfloat16) {
  for (const char* name : {"Q8_0", "Q4_K", "F16"}) {
    const BlockFormat& format = *find_block_format(std::string_view(name));
    const Tensor blocks = random_blocks(format, 7, 512, 3);
    const std::vector<float> expected = decoded(format, blocks);
    const ir::CustomCallInfo info{.target = "mt_dequantise", .integers = {{"type", format.id}}};
    const Tensor wide = call(info, {blocks}, {{DType::kF32, {7, 512}}})[0];
    EXPECT_EQ(values_of<float>(wide), expected) << name;
    const Tensor narrow =
        call(info, {blocks.reshape({7, 1, blocks.shape()[1]})}, {{DType::kBF16, {7, 1, 512}}})[0];
    const Tensor rounded = wide.cast(DType::kBF16);
    EXPECT_EQ(values_of<uint16_t>(narrow), values_of<uint16_t>(rounded)) << name;
  }
}

}  // namespace
}  // namespace mt::kernels
