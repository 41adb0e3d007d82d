// CPU kernels called by compiled programs: graph -> StableHLO -> the real plugin -> handler.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "ir/ops.h"
#include "kernels/call.h"
#include "kernels/kernels.h"
#include "kernels/products.h"
#include "kernels/test_blocks.h"
#include "pjrt/ffi.h"
#include "support/run_graph.h"

namespace mt::kernels {
namespace {

using checkpoint::BlockFormat;
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
  return Tensor::of<float>(DType::kF32, shape, random_floats(element_count(shape), seed));
}

Tensor blocks_of(const char* format, int64_t rows, int64_t k, uint64_t seed) {
  const BlockFormat& f = block_format(format);
  const std::vector<uint8_t> bytes = random_blocks(f, rows * k / f.elements, seed);
  return Tensor::of<uint8_t>(DType::kU8, {rows, k / f.elements * f.bytes}, bytes);
}

std::vector<float> decoded(const char* format, const Tensor& blocks) {
  return kernels::decoded(block_format(format), values_of<uint8_t>(blocks));
}

int64_t type_of(const char* format) { return block_format(format).id; }

constexpr int64_t kK = 512;

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
    const Tensor blocks = blocks_of(name, 7, kK, 3);
    const ir::CustomCallInfo info{.target = "mt_dequantise", .integers = {{"type", type_of(name)}}};
    const Tensor wide = call(info, {blocks}, {{DType::kF32, {7, kK}}})[0];
    EXPECT_EQ(values_of<float>(wide), decoded(name, blocks)) << name;
    const Tensor stacked = blocks.reshape({7, 1, blocks.shape()[1]});
    const Tensor narrow = call(info, {stacked}, {{DType::kBF16, {7, 1, kK}}})[0];
    EXPECT_EQ(values_of<uint16_t>(narrow), values_of<uint16_t>(wide.cast(DType::kBF16))) << name;
  }
}

// Numbers that 16 bits hold: multiples of 1/32639, one of each 32 being 1.
Tensor exact_floats(const Shape& shape, uint64_t seed) {
  Tensor t = floats(shape, seed);
  auto x = t.mutable_data<float>();
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = i % 32 == 0 ? 1.0F : std::nearbyint(x[i] * 32639.0F) / 32639.0F;
  }
  return t;
}

// Two weights of different formats in one call, x with a batch and a length.
TEST(KernelsDevice, MultipliesByQuantisedWeights) {
  const Tensor x = exact_floats({3, 1, kK}, 1), a = blocks_of("Q4_K", 40, kK, 2),
               b = blocks_of("Q5_0", 9, kK, 3);
  const std::vector<Tensor> found =
      call({.target = "mt_quantised_matmul",
            .integers = {{"type_0", type_of("Q4_K")}, {"type_1", type_of("Q5_0")}}},
           {x, a, b}, {{DType::kF32, {3, 1, 40}}, {DType::kF32, {3, 1, 9}}});
  std::vector<float> ya(3 * 40), yb(3 * 9);
  const QuantisedWeight weights[] = {{&block_format("Q4_K"), a.bytes().data(), 40, ya.data()},
                                     {&block_format("Q5_0"), b.bytes().data(), 9, yb.data()}};
  quantised_matmul({}, x.data<float>().data(), 3, kK, weights);
  EXPECT_EQ(values_of<float>(found[0]), ya);
  EXPECT_EQ(values_of<float>(found[1]), yb);
  const std::vector<float> first = decoded("Q4_K", a);
  const float expected =
      std::inner_product(first.begin(), first.begin() + kK, x.data<float>().begin(), 0.0F);
  EXPECT_NEAR(ya[0], expected, 1e-5F * std::abs(expected));
}

TEST(KernelsDevice, MultipliesByFloatWeights) {
  const Tensor x = floats({2, kK}, 1), w = floats({5, kK}, 2);
  const std::vector<Tensor> found =
      call({.target = "mt_matvec"}, {x, w, w.cast(DType::kBF16), w.cast(DType::kF16)},
           {{DType::kF32, {2, 5}}, {DType::kF32, {2, 5}}, {DType::kF32, {2, 5}}});
  for (int64_t m = 0; m < 2; ++m) {
    for (int64_t n = 0; n < 5; ++n) {
      const float* row = x.data<float>().data() + m * kK;
      const float expected =
          std::inner_product(row, row + kK, w.data<float>().data() + n * kK, 0.0F);
      const auto at = static_cast<size_t>(5 * m + n);
      EXPECT_NEAR(found[0].data<float>()[at], expected, 1e-4F);
      EXPECT_NEAR(found[1].data<float>()[at], expected, 0.3F);
      EXPECT_NEAR(found[2].data<float>()[at], expected, 0.03F);
    }
  }
}

// Four devices at once, each with its shard of the rows; the others' loops run on their own thread.
TEST(KernelsDevice, ShardsOfAManualComputation) {
  register_cpu_handlers(*client(4));
  const Tensor x = floats({1, kK}, 1), w = blocks_of("Q8_0", 64, kK, 2);
  const sharding::Mesh mesh{{{"tensor", 4}}};
  ir::Graph g;
  const ir::Value xv = g.parameter({x.dtype(), x.shape()});
  const ir::Value wv = g.parameter({w.dtype(), w.shape()});
  ir::ManualInfo info;
  info.in = {{{{}, {}}}, {{{"tensor"}, {}}}};
  info.out = {{{{}, {"tensor"}}}};
  info.manual_axes = {"tensor"};
  g.outputs = ir::manual_computation(
      {xv, wv}, info, mesh, {{DType::kF32, {1, 64}}}, [&](const std::vector<ir::Value>& v) {
        return ir::custom_call(
            *v[0].graph,
            {.target = "mt_quantised_matmul", .integers = {{"type_0", type_of("Q8_0")}}}, v,
            {{DType::kF32, {1, 16}}});
      });
  const ir::ProgramSpec spec{
      .mesh = mesh, .arguments = {info.in[0], info.in[1]}, .results = {info.out[0]}};
  const std::vector<float> found = values_of<float>(testing::run(g, {x, w}, spec)[0]);
  std::vector<float> expected(64);
  const QuantisedWeight weight{&block_format("Q8_0"), w.bytes().data(), 64, expected.data()};
  quantised_matmul({}, x.data<float>().data(), 1, kK, {&weight, 1});
  EXPECT_EQ(found, expected);
}

TEST(KernelsDevice, WrongCallsAreErrorsWithTheirText) {
  const Tensor x = floats({2, kK}, 1), w = blocks_of("Q8_0", 4, kK, 2);
  const Type result{DType::kF32, {2, 4}};
  const auto dequantise = [&](std::map<std::string, int64_t> integers,
                              const std::vector<Tensor>& operands, const Type& type) {
    return call_error({.target = "mt_dequantise", .integers = std::move(integers)}, operands,
                      {type});
  };
  EXPECT_EQ(dequantise({}, {w}, {DType::kF32, {4, kK}}), "attribute type is missing");
  EXPECT_EQ(dequantise({{"type", 99}}, {w}, {DType::kF32, {4, kK}}),
            "attribute type: 99 is no GGUF type known here");
  EXPECT_EQ(dequantise({{"type", 26}}, {w}, {DType::kF32, {4, kK}}),
            "attribute type: I32 can't be dequantised");
  EXPECT_EQ(dequantise({{"type", 8}}, {x}, {DType::kF32, {4, kK}}),
            "argument 0 is f32[2, 512], expected u8 blocks of Q8_0");
  EXPECT_EQ(dequantise({{"type", 12}}, {w}, {DType::kF32, {4, kK}}),
            "argument 0 is u8[4, 544]: rows are not whole Q4_K blocks of 144 bytes");
  EXPECT_EQ(dequantise({{"type", 8}}, {w}, {DType::kF32, {4, 32}}),
            "result 0 is f32[4, 32], expected f32[4, 512]");
  EXPECT_EQ(dequantise({{"type", 8}}, {w}, {DType::kF16, {4, kK}}),
            "result 0 is f16[4, 512], expected f32 or bf16");
  EXPECT_EQ(dequantise({{"type", 8}}, {w, w}, {DType::kF32, {4, kK}}),
            "2 arguments and 1 results, expected one of each");
  const auto matmul = [&](int64_t type, const std::vector<Tensor>& operands,
                          const std::vector<Type>& types) {
    return call_error({.target = "mt_quantised_matmul", .integers = {{"type_0", type}}}, operands,
                      types);
  };
  EXPECT_EQ(matmul(8, {x}, {result}), "0 weights and 1 results: expected a result a weight");
  EXPECT_EQ(matmul(8, {x, w, w}, {result}), "2 weights and 1 results: expected a result a weight");
  EXPECT_EQ(matmul(8, {x, w, w}, {result, result}), "attribute type_1 is missing");
  EXPECT_EQ(matmul(8, {w, w}, {result}), "argument 0 is u8[4, 544], expected f32[..., K]");
  EXPECT_EQ(matmul(1, {x, w}, {result}),
            "attribute type_0: no product with F16 here (mt_matvec takes floats)");
  EXPECT_EQ(matmul(8, {floats({2, 32}, 1), w}, {result}),
            "argument 1 is u8[4, 544], a matrix of Q8_0 with 32 columns expected");
  EXPECT_EQ(matmul(8, {x, w.reshape({2, 2, 544})}, {result}),
            "argument 1 is u8[2, 2, 544], a matrix of Q8_0 with 512 columns expected");
  EXPECT_EQ(matmul(8, {x, w}, {{DType::kBF16, {2, 4}}}), "result 0 is bf16[2, 4], expected f32");
  EXPECT_EQ(matmul(8, {x, w}, {{DType::kF32, {2, 5}}}),
            "result 0 is f32[2, 5], expected f32[2, 4]");
  EXPECT_EQ(matmul(8, {floats({}, 1), w}, {result}), "argument 0 is f32[], expected f32[..., K]");
  const auto matvec = [&](const std::vector<Tensor>& operands) {
    return call_error({.target = "mt_matvec"}, operands, {result});
  };
  EXPECT_EQ(matvec({x, floats({4, 3}, 1)}),
            "argument 1 is f32[4, 3], expected f32, f16 or bf16 [N, 512]");
  EXPECT_EQ(matvec({x, w}), "argument 1 is u8[4, 544], expected f32, f16 or bf16 [N, 512]");
  // A program that was refused leaves the next one alone.
  EXPECT_EQ(matmul(8, {x, w}, {result}), "");
}

}  // namespace
}  // namespace mt::kernels
