// A module of one's own, trained: a multilayer perceptron learns to tell two spirals apart.
#include <fmt/core.h>

#include <cmath>

#include "nnx/init.h"
#include "nnx/jit.h"
#include "nnx/optimizer.h"
#include "nnx/transforms.h"
#include "pjrt/client.h"

namespace mt {
namespace {

using ir::Value;

// A layer lists its variables once, in visit(): names, first values and updates follow from that.
class Linear final : public nnx::Module {
 public:
  Linear(int64_t in, int64_t out)
      : kernel(nnx::param(DType::kF32, {in, out}, {"embed", "mlp"},
                          nnx::initializers::variance_scaling(in, true))),
        bias(nnx::param(DType::kF32, {out}, {"mlp"}, nnx::initializers::zeros())) {}
  void visit(nnx::Visitor& v) override {
    v("kernel", kernel);
    v("bias", bias);
  }
  Value operator()(Value x_bd) { return ir::einsum("bd,df->bf", x_bd, kernel.value) + bias.value; }
  nnx::Variable kernel, bias;
};

class Mlp final : public nnx::Module {
 public:
  explicit Mlp(int64_t width) : in(2, width), middle(width, width), out(width, 1) {}
  void visit(nnx::Visitor& v) override {
    v("in", in);
    v("middle", middle);
    v("out", out);
  }
  Value operator()(Value x_bd) { return out(ir::sin(middle(ir::sin(4.0 * in(x_bd))))); }
  Linear in, middle, out;
};

// Points [256, 2] and labels [256, 1], +1 and -1, on two arms that turn twice.
constexpr int64_t kPoints = 256;
std::vector<Tensor> two_spirals() {
  Tensor x(DType::kF32, {kPoints, 2}), y(DType::kF32, {kPoints, 1});
  for (size_t i = 0; i < static_cast<size_t>(kPoints); ++i) {
    const float label = i % 2 == 0 ? 1 : -1;
    const float t = static_cast<float>(i / 2) / static_cast<float>(kPoints / 2);
    const float angle = 4 * static_cast<float>(M_PI) * t, radius = label * (0.1F + 0.9F * t);
    x.mutable_data<float>()[2 * i] = radius * std::cos(angle);
    x.mutable_data<float>()[2 * i + 1] = radius * std::sin(angle);
    y.mutable_data<float>()[i] = label;
  }
  return {x, y};
}

void train(int steps) {
  const auto client = pjrt::Client::create({.platform = "cpu"});
  const nnx::Partitioner one_device;
  const nnx::Filter params = nnx::of_kind(nnx::VariableKind::kParam);
  Mlp model(64);
  nnx::Optimizer optimizer(model, nnx::adamw({.weight_decay = 0}), params);
  nnx::initialize(model, client, one_device, /*seed=*/0);
  nnx::initialize(optimizer, client, one_device, /*seed=*/0);
  fmt::print("{}\n", nnx::tabulate(model));

  nnx::Compiled step = nnx::jit(
      "train_step", client, {&model, &optimizer},
      {{"x", {DType::kF32, {kPoints, 2}}, {}}, {"y", {DType::kF32, {kPoints, 1}}, {}}}, one_device,
      [&](ir::Graph& graph, const std::vector<Value>& in) -> std::vector<nnx::Output> {
        const auto [loss, aux, gradients] = nnx::value_and_grad(model, params, [&] {
          const Value margin = model(in[0]) * in[1];
          return nnx::Values{ir::mean(ir::log1p(ir::exp(-margin)), {0, 1})};
        });
        optimizer.update(model, gradients, ir::full(graph, DType::kF32, {}, 3e-3));
        return {loss};
      });
  const std::vector<Tensor> batch = two_spirals();
  for (int i = 0; i <= steps; ++i) {
    const std::vector<pjrt::Array> out = step(batch);
    if (i % 50 == 0) fmt::print("step: {}, loss: {:.4f}\n", i, out[0].to_host().data<float>()[0]);
  }
}

}  // namespace
}  // namespace mt

int main() {
  try {
    mt::train(/*steps=*/300);
  } catch (const mt::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
