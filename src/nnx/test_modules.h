// Small modules that the tests of this room, and tests/nnx_device_test.cc, are about.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nnx/module.h"
#include "nnx/variable.h"

namespace mt::nnx {

// y = x kernel + bias
class TestLinear final : public Module {
 public:
  TestLinear(int64_t in, int64_t out)
      : kernel(param(DType::kF32, {in, out}, {"embed", "mlp"},
                     initializers::variance_scaling(in, true))),
        bias(param(DType::kF32, {out}, {"mlp"}, initializers::zeros())) {}
  void visit(Visitor& v) override {
    v("kernel", kernel);
    v("bias", bias);
  }
  ir::Value operator()(ir::Value x) {
    return ir::einsum("bi,io->bo", x, kernel.value) + bias.value;
  }
  Variable kernel, bias;
};

// tanh(linear(x)) + x, with a counter of calls that is no parameter.
class TestLayer final : public Module {
 public:
  explicit TestLayer(int64_t width)
      : linear(width, width), calls(VariableKind::kBatchStat, {DType::kF32, {}}, {}) {}
  void visit(Visitor& v) override {
    v("linear", linear);
    v("calls", calls);
  }
  ir::Value operator()(ir::Value x) {
    const ir::Value y = ir::tanh(ir::checkpoint_name(linear(x), "dot"));
    calls.value = calls.value + 1.0;
    sow("norm", ir::reduce_sum(y * y, {0, 1}));
    return x + y;
  }
  TestLinear linear;
  Variable calls;
};

class TestStack final : public Module {
 public:
  TestStack(int64_t width, int64_t depth) {
    for (int64_t i = 0; i < depth; ++i) layers.push_back(std::make_unique<TestLayer>(width));
  }
  void visit(Visitor& v) override { v("layers", layers); }
  ir::Value operator()(ir::Value x) {
    for (const auto& layer : layers) x = (*layer)(x);
    return x;
  }
  std::vector<std::unique_ptr<TestLayer>> layers;
};

}  // namespace mt::nnx
