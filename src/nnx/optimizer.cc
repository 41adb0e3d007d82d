#include "nnx/optimizer.h"

#include "base/error.h"

namespace mt::nnx {
namespace {

using ir::Value;

class AdamW final : public Transform {
 public:
  explicit AdamW(AdamWOptions options) : o_(options) {}
  std::vector<std::string> slots() const override { return {"mu", "nu"}; }
  Value update(Value parameter, Value gradient, std::vector<Value>& slots, Value count,
               Value learning_rate) const override {
    const Value g = ir::cast(gradient, DType::kF32), p = ir::cast(parameter, DType::kF32);
    const Value t = ir::cast(count, DType::kF32);
    const Value m = ir::cast(slots[0], DType::kF32) * o_.b1 + g * (1 - o_.b1);
    const Value v = ir::cast(slots[1], DType::kF32) * o_.b2 + g * g * (1 - o_.b2);
    const auto bias = [&](double beta) {
      return 1.0 - ir::power(ir::full(*t.graph, DType::kF32, {}, beta), t);
    };
    const Value m_hat = m / bias(o_.b1), v_hat = v / bias(o_.b2);
    const Value root = ir::sqrt(o_.eps_root == 0 ? v_hat : v_hat + o_.eps_root);
    const Value step = m_hat / (root + o_.eps) + p * o_.weight_decay;
    slots[0] = ir::cast(m, slots[0].dtype());
    slots[1] = ir::cast(v, slots[1].dtype());
    return ir::cast(p - step * learning_rate, parameter.dtype());
  }

 private:
  AdamWOptions o_;
};

class Sgd final : public Transform {
 public:
  std::vector<std::string> slots() const override { return {}; }
  Value update(Value parameter, Value gradient, std::vector<Value>&, Value,
               Value learning_rate) const override {
    const Value p = ir::cast(parameter, DType::kF32);
    return ir::cast(p - ir::cast(gradient, DType::kF32) * learning_rate, parameter.dtype());
  }
};

}  // namespace

std::unique_ptr<Transform> adamw(AdamWOptions options) { return std::make_unique<AdamW>(options); }
std::unique_ptr<Transform> sgd() { return std::make_unique<Sgd>(); }

Optimizer::Optimizer(Module& model, std::unique_ptr<Transform> transform, Filter wrt,
                     std::optional<DType> first_dtype)
    : count(VariableKind::kOptState, {DType::kS32, {}}, {}),
      transform_(std::move(transform)),
      wrt_(std::move(wrt)) {
  for (const auto& [path, v] : variables(model)) {
    if (!wrt_(path, *v)) continue;
    Slot slot{path, {}};
    for (size_t i = 0; i < transform_->slots().size(); ++i) {
      const DType dtype = i == 0 ? first_dtype.value_or(v->type.dtype) : v->type.dtype;
      Variable s(VariableKind::kOptState, {dtype, v->type.shape}, v->axes);
      s.stack_axis = v->stack_axis;
      s.stack_length = v->stack_length;
      slot.variables.push_back(std::move(s));
    }
    slots_.push_back(std::move(slot));
  }
}

void Optimizer::visit(Visitor& v) {
  v("opt_state/count", count);
  const std::vector<std::string> names = transform_->slots();
  for (size_t i = 0; i < names.size(); ++i) {
    for (Slot& slot : slots_) v("opt_state/" + names[i] + "/" + slot.path, slot.variables[i]);
  }
}

void Optimizer::update(Module& model, const State& gradients, Value learning_rate) {
  MT_CHECK(gradients.entries.size() == slots_.size());
  count.value = count.value + 1.0;
  size_t i = 0;
  for (auto& [path, v] : variables(model)) {
    if (!wrt_(path, *v)) continue;
    const State::Entry& gradient = gradients.entries[i];
    Slot& slot = slots_[i++];
    MT_CHECK(gradient.path == path && slot.path == path);
    std::vector<Value> values;
    for (const Variable& s : slot.variables) values.push_back(s.value);
    v->value =
        transform_->update(v->value, gradient.variable.value, values, count.value, learning_rate);
    for (size_t k = 0; k < values.size(); ++k) slot.variables[k].value = values[k];
  }
}

}  // namespace mt::nnx
