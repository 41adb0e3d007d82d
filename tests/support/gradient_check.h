// Gradients against central differences in float64, in one random direction an input (the method of
// jax.test_util.check_grads).
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "autodiff/vjp.h"
#include "ir/ops.h"
#include "support/run_graph.h"

namespace mt::testing {

struct SampleInput {
  Shape shape;
  double low = -1, high = 1;
};

struct GradientSample {
  ir::OpKind kind;  // the op that this sample is for; the traced function must contain it
  std::string name;
  std::vector<SampleInput> inputs;  // all f64
  std::function<std::vector<ir::Value>(const std::vector<ir::Value>&)> fn;
  // All numbers are small multiples of 1/8: for functions linear in each input that pass through
  // narrow floats, where such numbers are exact.
  bool coarse = false;
};

inline Tensor random_f64(std::mt19937_64& bits, const Shape& shape, double low, double high,
                         bool coarse = false) {
  Tensor out(DType::kF64, shape);
  for (double& x : out.mutable_data<double>()) {
    const double u = static_cast<double>(bits() >> 11) * 0x1p-53;
    x = low + (high - low) * u;
    if (coarse) x = std::round(x * 8) / 8;
  }
  return out;
}

inline Tensor moved(const Tensor& x, const Tensor& direction, double step) {
  Tensor out(DType::kF64, x.shape());
  for (size_t i = 0; i < static_cast<size_t>(x.size()); ++i) {
    out.mutable_data<double>()[i] = x.data<double>()[i] + step * direction.data<double>()[i];
  }
  return out;
}

inline double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (size_t i = 0; i < static_cast<size_t>(a.size()); ++i) {
    sum += a.data<double>()[i] * b.data<double>()[i];
  }
  return sum;
}

// Compares for each input alone; every input must have a gradient that isn't zero.
inline void check_gradient(const GradientSample& sample) {
  SCOPED_TRACE(sample.name);
  std::mt19937_64 bits(20260707);
  ir::Graph graph;
  std::vector<ir::Value> in, weights;
  std::vector<Tensor> x;
  for (const SampleInput& input : sample.inputs) {
    in.push_back(graph.parameter({DType::kF64, input.shape}));
    x.push_back(random_f64(bits, input.shape, input.low, input.high, sample.coarse));
  }
  const std::vector<ir::Value> out = sample.fn(in);
  ir::Value loss = ir::full(graph, DType::kF64, {}, 0);
  for (const ir::Value& v : out) {
    ASSERT_EQ(v.dtype(), DType::kF64);
    weights.push_back(ir::constant(graph, random_f64(bits, v.shape(), -1, 1, sample.coarse)));
    loss = loss + ir::sum_all(v * weights.back());
  }
  EXPECT_GT(ir::count(graph, sample.kind), 0) << "the sample does not contain its op";
  graph.outputs = autodiff::vjp(out, weights, in);
  graph.outputs.push_back(loss);
  const Program program(graph);
  const std::vector<Tensor> gradients = program(x);
  const double step = sample.coarse ? 0.125 : 1e-5;
  for (size_t i = 0; i < x.size(); ++i) {
    const Tensor direction = random_f64(bits, x[i].shape(), -1, 1);
    Tensor rounded = direction;
    if (sample.coarse) {
      for (double& d : rounded.mutable_data<double>()) d = d < 0 ? -1 : 1;
    }
    const auto loss_at = [&](double s) {
      std::vector<Tensor> y = x;
      y[i] = moved(x[i], rounded, s);
      return program(y).back().data<double>()[0];
    };
    const double expected = (loss_at(step) - loss_at(-step)) / (2 * step);
    const double found = dot(gradients[i], rounded);
    EXPECT_NE(expected, 0) << "input " << i << ": a gradient of zero proves nothing";
    EXPECT_NEAR(found, expected, 1e-6 * std::abs(expected)) << "input " << i;
  }
}

}  // namespace mt::testing
