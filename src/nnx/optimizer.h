// Optimizers: a module whose variables mirror the parameters' names, shapes and axes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nnx/state.h"

namespace mt::nnx {

// One parameter's update. Slots are the optimizer's variables for it, all of the parameter's shape.
class Transform {
 public:
  virtual ~Transform() = default;
  virtual std::vector<std::string> slots() const = 0;  // {"mu", "nu"}
  // `count`: s32 scalar, 1 at the first update; `learning_rate`: f32 scalar. Computes in float32,
  // rounds once to the stored dtypes. Replaces slot values; returns the parameter's new value.
  virtual ir::Value update(ir::Value parameter, ir::Value gradient, std::vector<ir::Value>& slots,
                           ir::Value count, ir::Value learning_rate) const = 0;
};

struct AdamWOptions {
  double b1 = 0.9, b2 = 0.95, eps = 1e-8, eps_root = 0, weight_decay = 0.1;
};
// Loshchilov and Hutter's AdamW in optax's form: p -= lr * (m^/(sqrt(v^ + eps_root) + eps) + wd *
// p).
std::unique_ptr<Transform> adamw(AdamWOptions options);
std::unique_ptr<Transform> sgd();

class Optimizer final : public Module {
 public:
  // One variable a slot for each variable of `model` that `wrt` takes, in the parameter's dtype;
  // the first slot (mu) in `first_dtype` if given.
  Optimizer(Module& model, std::unique_ptr<Transform> transform, Filter wrt,
            std::optional<DType> first_dtype = std::nullopt);
  void visit(Visitor& v) override;
  // Applies gradients (same order as state(model, wrt)) inside a traced program.
  void update(Module& model, const State& gradients, ir::Value learning_rate);

  Variable count;  // s32: updates so far

 private:
  struct Slot {
    std::string path;
    std::vector<Variable> variables;
  };
  std::unique_ptr<Transform> transform_;
  Filter wrt_;
  std::vector<Slot> slots_;
};

}  // namespace mt::nnx
