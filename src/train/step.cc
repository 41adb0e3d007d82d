#include "train/step.h"

#include "nnx/transforms.h"
#include "sharding/axes.h"

namespace mt::train {
namespace {

namespace axes = sharding::axes;
using ir::Value;
using models::gemma3::Gemma3Model;
using Values = std::vector<Value>;

constexpr double kTiny = 1e-8;  // keeps a batch without targets finite

struct BatchValues {
  Value inputs, targets, positions, segments, target_segments;
};

BatchValues batch_values(const Values& in) { return {in[0], in[1], in[2], in[3], in[4]}; }

Loss forward(Gemma3Model& model, const BatchValues& batch, const StepOptions& options,
             nnx::Rngs* rngs) {
  const Value hidden =
      options.hidden ? options.hidden(model, batch.inputs, batch.positions, batch.segments, rngs)
                     : model.hidden(batch.inputs, batch.positions, batch.segments, rngs);
  return cross_entropy(model, hidden, batch.targets, batch.target_segments, options.loss);
}

struct Gradients {
  nnx::State state;  // of total_loss, not divided
  Loss loss;
};

Gradients whole_batch(Gemma3Model& model, const BatchValues& batch, const StepOptions& options,
                      nnx::Rngs* rngs) {
  nnx::ValueAndGrad r =
      nnx::value_and_grad(model, nnx::of_kind(nnx::VariableKind::kParam), [&]() -> Values {
        const Loss loss = forward(model, batch, options, rngs);
        return {loss.total_loss, loss.total_weights, loss.total_z_loss};
      });
  return {std::move(r.gradients), {r.value, r.aux[0], r.aux[1]}};
}

// A scan over microbatches; sums total_loss and its gradients (float32), so that every token counts
// the same whatever microbatch it is in.
Gradients accumulated(Gemma3Model& model, const BatchValues& batch, const StepOptions& options,
                      nnx::Rngs* rngs) {
  const int64_t n = options.gradient_accumulation_steps;
  ir::Graph& graph = *batch.inputs.graph;
  const auto vars = nnx::variables(model);
  Values carry;
  for (int i = 0; i < 3; ++i) carry.push_back(ir::full(graph, DType::kF32, {}, 0));
  for (const auto& [path, v] : vars)
    carry.push_back(ir::full(graph, DType::kF32, v->type.shape, 0));
  Values xs{ir::iota(graph, DType::kS32, {n}, 0)};
  ir::ScanOptions scan;
  scan.length = n;
  scan.x_axes = {0, 1, 1, 1, 1, 1};
  // Rows [B/n, n, L]: a device's rows stay with it whatever microbatch they fall in.
  for (const Value v :
       {batch.inputs, batch.targets, batch.positions, batch.segments, batch.target_segments}) {
    xs.push_back(ir::reshape(v, {v.dim(0) / n, n, v.dim(1)}));
  }
  nnx::State gradients = nnx::state(model);
  const Values r = ir::scan(carry, xs, scan, [&](const Values& s) -> Values {
    ir::Graph& inner = *s[0].graph;
    Values parameters;
    for (const auto& [path, v] : vars) parameters.push_back(inner.import(v->value));
    const nnx::Binding binding(vars, parameters);
    const size_t at = carry.size();
    std::optional<nnx::Rngs> own;
    if (rngs != nullptr) own = rngs->fork(s[at]);
    const Gradients g =
        whole_batch(model, batch_values(Values(s.begin() + static_cast<long>(at) + 1, s.end())),
                    options, own ? &*own : nullptr);
    nnx::pop_intermediates(model);  // of a microbatch: not reported
    Values out{s[0] + g.loss.total_loss, s[1] + g.loss.total_weights, s[2] + g.loss.total_z_loss};
    for (size_t i = 0; i < vars.size(); ++i) {
      out.push_back(s[3 + i] + ir::cast(g.state.entries[i].variable.value, DType::kF32));
    }
    return out;
  });
  for (size_t i = 0; i < vars.size(); ++i) gradients.entries[i].variable.value = r[3 + i];
  return {std::move(gradients), {r[0], r[1], r[2]}};
}

Value global_norm(const Values& values) {
  Value sum;
  for (const Value& v : values) {
    const Value s = ir::sum_all(ir::square(ir::cast(v, DType::kF32)));
    sum = sum ? sum + s : s;
  }
  return ir::sqrt(sum);
}

// g * threshold / norm where norm >= threshold.
Value clip_factor(Value norm, double threshold) {
  const Value one = ir::full(*norm.graph, DType::kF32, {}, 1);
  if (threshold <= 0) return one;
  const Value limit = ir::full(*norm.graph, DType::kF32, {}, threshold);
  return ir::select(ir::compare(norm, ir::Direction::kLt, limit), one, limit / norm);
}

void scale_gradients(nnx::State& gradients, Value factor, DType dtype) {
  for (auto& e : gradients.entries) {
    e.variable.value = ir::cast(ir::cast(e.variable.value, DType::kF32) * factor, dtype);
  }
}

}  // namespace

std::vector<nnx::Input> batch_inputs(const StepOptions& options,
                                     const nnx::Partitioner& partitioner) {
  const sharding::PartitionSpec spec =
      partitioner.spec({std::string(axes::activation_embed_and_logits_batch),
                        std::string(axes::activation_norm_length)});
  std::vector<nnx::Input> inputs;
  for (const char* name :
       {"inputs", "targets", "inputs_position", "inputs_segmentation", "targets_segmentation"}) {
    inputs.push_back({name, {DType::kS32, {options.batch_rows, options.length}}, spec});
  }
  return inputs;
}

std::shared_ptr<const nnx::Traced> trace_train_step(Gemma3Model& model, nnx::Optimizer& optimizer,
                                                    const StepOptions& options,
                                                    std::vector<std::string>* sown_names) {
  const nnx::Partitioner& partitioner = *model.partitioner();
  std::vector<nnx::Input> inputs = batch_inputs(options, partitioner);
  inputs.push_back({"learning_rate", {DType::kF32, {}}, {}});
  inputs.push_back({"step", {DType::kS32, {}}, {}});
  return nnx::Traced::trace(
      "jit_train_step", {&model, &optimizer}, inputs, partitioner,
      [&](ir::Graph& graph, const Values& in) -> std::vector<nnx::Output> {
        std::optional<nnx::Rngs> rngs;
        if (options.enable_dropout && model.options().dropout_rate > 0) {
          rngs.emplace(ir::fold_in(ir::key_from_seed(graph, options.dropout_seed), in[6]));
        }
        nnx::Rngs* streams = rngs ? &*rngs : nullptr;
        const BatchValues batch = batch_values(in);
        Gradients g = options.gradient_accumulation_steps > 1
                          ? accumulated(model, batch, options, streams)
                          : whole_batch(model, batch, options, streams);
        const ir::Scope scope(graph, "optimizer");
        const Value inverse = 1.0 / (g.loss.total_weights + kTiny);
        const Value raw_norm = global_norm(g.state.values()) * inverse;
        const Value clip = clip_factor(raw_norm, options.gradient_clipping_threshold);
        scale_gradients(g.state, inverse * clip, options.grad_dtype);
        optimizer.update(model, g.state, in[5]);
        Values metrics(kStepMetricCount);
        metrics[kLoss] = g.loss.total_loss * inverse;
        metrics[kTotalWeights] = g.loss.total_weights;
        metrics[kRawGradNorm] = raw_norm;
        metrics[kGradNorm] = raw_norm * clip;
        metrics[kParamNorm] = global_norm(nnx::state(model).values());
        metrics[kZLoss] = g.loss.total_z_loss * inverse;
        for (Value& m : metrics) m = ir::reshape(m, {1});
        std::vector<nnx::Output> out{ir::concatenate(metrics, 0)};
        for (const nnx::Sown& s : nnx::pop_intermediates(model)) {
          out.emplace_back(s.value);
          if (sown_names != nullptr) sown_names->push_back(s.path);
        }
        return out;
      },
      options.donate);
}

std::shared_ptr<const nnx::Traced> trace_gradients(Gemma3Model& model, const StepOptions& options) {
  const nnx::Partitioner& partitioner = *model.partitioner();
  return nnx::Traced::trace(
      "jit_gradients", {&model}, batch_inputs(options, partitioner), partitioner,
      [&](ir::Graph&, const Values& in) -> std::vector<nnx::Output> {
        Gradients g = options.gradient_accumulation_steps > 1
                          ? accumulated(model, batch_values(in), options, nullptr)
                          : whole_batch(model, batch_values(in), options, nullptr);
        const Value inverse = 1.0 / (g.loss.total_weights + kTiny);
        scale_gradients(g.state, inverse, options.grad_dtype);
        std::vector<nnx::Output> out{ir::concatenate(
            {ir::reshape(g.loss.total_loss * inverse, {1}), ir::reshape(g.loss.total_weights, {1})},
            0)};
        for (auto& e : g.state.entries) {
          std::vector<std::string> names = e.variable.axes;
          out.emplace_back(e.variable.value, partitioner.spec(names));
        }
        nnx::pop_intermediates(model);
        return out;
      });
}

std::shared_ptr<const nnx::Traced> trace_logits(Gemma3Model& model, int64_t batch_rows,
                                                int64_t length) {
  const nnx::Partitioner& partitioner = *model.partitioner();
  StepOptions options;
  options.batch_rows = batch_rows;
  options.length = length;
  std::vector<nnx::Input> all = batch_inputs(options, partitioner);
  return nnx::Traced::trace("jit_logits", {&model}, {all[0], all[2], all[3]}, partitioner,
                            [&](ir::Graph&, const Values& in) -> std::vector<nnx::Output> {
                              const Value logits = model(in[0], in[1], in[2]);
                              nnx::pop_intermediates(model);
                              return {logits};
                            });
}

std::shared_ptr<const nnx::Traced> trace_token_losses(Gemma3Model& model,
                                                      const StepOptions& options) {
  const nnx::Partitioner& partitioner = *model.partitioner();
  return nnx::Traced::trace(
      "jit_token_losses", {&model}, batch_inputs(options, partitioner), partitioner,
      [&](ir::Graph& graph, const Values& in) -> std::vector<nnx::Output> {
        const BatchValues batch = batch_values(in);
        const Value hidden = model.hidden(batch.inputs, batch.positions, batch.segments, nullptr);
        nnx::pop_intermediates(model);
        // One row of tokens at a time, so that the logits of one row exist at once.
        ir::ScanOptions scan;
        scan.length = options.batch_rows;
        return {ir::scan(
            {ir::full(graph, DType::kF32, {}, 0)}, {hidden, batch.targets, batch.target_segments},
            scan, [&](const Values& s) -> Values {
              const Value logits =
                  ir::squeeze(model.token_embedder.attend(ir::expand_dims(s[1], 0)), 0);
              const Value top = ir::reduce_max(logits, {-1}, true);
              const Value lse = ir::log(ir::reduce_sum(ir::exp(logits - top), {-1}, true)) + top;
              const Value column = ir::iota(*logits.graph, DType::kS32, logits.shape(), 1);
              const Value hit = ir::compare(column, ir::Direction::kEq, ir::expand_dims(s[2], -1));
              const Value xent =
                  ir::reduce_sum(ir::select(hit, ir::broadcast_to(lse, logits.shape()) - logits,
                                            ir::zeros_like(logits)),
                                 {-1});
              const Value real = ir::compare(s[3], ir::Direction::kNe, ir::zeros_like(s[3]));
              return {s[0], ir::select(real, xent, ir::zeros_like(xent))};
            })[1]};
      });
}

}  // namespace mt::train
