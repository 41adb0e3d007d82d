// The loss and the training step on small models: tiles, z-loss, masks, accumulation, clipping,
// number types, memory.
#include <gtest/gtest.h>

#include "autodiff/vjp.h"
#include "layers/remat_policy.h"
#include "models/gemma3/from_run.h"
#include "nnx/optimizer.h"
#include "support/small_model.h"

namespace mt::train {
namespace {

using ir::Value;
using models::gemma3::Gemma3Config;
using models::gemma3::Gemma3Model;
using models::gemma3::ModelOptions;
using testing::gradients_of;
using testing::partitioner_of;
using testing::random_batch;
using testing::relative_difference;
using testing::small_options;
using testing::small_sizes;
using testing::SmallRun;
using testing::values_of;
using Values = std::vector<Value>;

// --- the loss alone, on a given hidden state

struct LossGraph {
  explicit LossGraph(const Gemma3Config& sizes, int64_t rows, int64_t length)
      : model(sizes, small_options(), partitioner_of()) {
    hidden = graph.parameter({DType::kF32, {rows, length, sizes.emb_dim}}, "hidden");
    table = graph.parameter({DType::kF32, {sizes.vocab_size, sizes.emb_dim}}, "table");
    targets = graph.parameter({DType::kS32, {rows, length}}, "targets");
    segments = graph.parameter({DType::kS32, {rows, length}}, "segments");
    model.token_embedder.embedding.value = table;
  }
  // Appends {loss, weights, z loss, d hidden, d table}.
  void output(const Loss& loss) {
    graph.outputs.insert(graph.outputs.end(),
                         {loss.total_loss, loss.total_weights, loss.total_z_loss});
    const Value one = ir::full(graph, DType::kF32, {}, 1);
    for (const Value g : autodiff::vjp({loss.total_loss}, {one}, {hidden, table}))
      graph.outputs.push_back(g);
  }
  void tiled(const LossOptions& options) {
    output(cross_entropy(model, hidden, targets, segments, options));
  }
  // The formula as it stands, over all logits at once, differentiated by the rules of its ops.
  void plain(double z) {
    const Value logits = model.token_embedder.attend(hidden);
    const Value top = ir::reduce_max(logits, {-1}, true);
    const Value lse = ir::log(ir::reduce_sum(ir::exp(logits - top), {-1}, true)) + top;
    const Value column = ir::iota(graph, DType::kS32, logits.shape(), 2);
    const Value onehot = ir::cast(
        ir::compare(column, ir::Direction::kEq, ir::expand_dims(targets, -1)), DType::kF32);
    const Value picked = ir::reduce_sum(logits * onehot, {-1}, true);
    const Value weight = ir::expand_dims(
        ir::cast(ir::compare(segments, ir::Direction::kNe, ir::zeros_like(segments)), DType::kF32),
        -1);
    const Value z_loss = ir::sum_all(ir::square(lse) * z * weight);
    output({ir::sum_all((lse - picked) * weight) + z_loss, ir::sum_all(weight), z_loss});
  }
  ir::Graph graph;
  Gemma3Model model;
  Value hidden, table, targets, segments;
};

std::vector<Tensor> loss_inputs(const Gemma3Config& sizes, int64_t rows, int64_t length) {
  const auto floats = [](const Shape& shape, uint64_t seed) {
    Tensor t(DType::kF32, shape);
    for (size_t i = 0; i < static_cast<size_t>(t.size()); ++i) {
      t.mutable_data<float>()[i] =
          3 * (static_cast<float>(random_bits_at(random_key(seed), i)) * 0x1p-31F - 1);
    }
    return t;
  };
  std::vector<Tensor> batch = random_batch(rows, length, sizes.vocab_size);
  for (size_t i = 0; i < static_cast<size_t>(rows * length); ++i) {
    batch[4].mutable_data<int32_t>()[i] = i % 5 == 3 ? 0 : static_cast<int32_t>(1 + i % 3);
  }
  return {floats({rows, length, sizes.emb_dim}, 5), floats({sizes.vocab_size, sizes.emb_dim}, 6),
          batch[1], batch[4]};
}

TEST(Loss, IsThePlainFormulaInAnyNumberOfTiles) {
  const Gemma3Config sizes = small_sizes();
  constexpr int64_t kRows = 2, kLength = 11;  // 22 tokens: 3 and 7 tiles have a ragged end
  const std::vector<int64_t> tiles{1, 3, 7, 22, 1000, 0};
  LossGraph g(sizes, kRows, kLength);
  for (const double z : {0.0, 0.05}) {
    g.plain(z);
    for (const int64_t t : tiles) g.tiled({t, z});
  }
  const std::vector<Tensor> out = testing::run(g.graph, loss_inputs(sizes, kRows, kLength));
  for (size_t zi = 0; zi < 2; ++zi) {
    const size_t plain = zi * 5 * (tiles.size() + 1);
    EXPECT_EQ(out[plain + 1].data<float>()[0], 18);  // 22 less every fifth from the fourth on
    EXPECT_EQ(out[plain + 2].data<float>()[0] > 0, zi == 1);
    for (size_t t = 0; t < tiles.size(); ++t) {
      for (size_t i = 0; i < 5; ++i) {
        EXPECT_LE(relative_difference(values_of<float>(out[plain + 5 * (t + 1) + i]),
                                      values_of<float>(out[plain + i])),
                  2e-6)
            << "tiles " << tiles[t] << ", result " << i << ", z " << zi;
      }
    }
  }
}

// The loss as it is written down, in double on the host.
double host_loss(const std::vector<double>& hidden, const std::vector<double>& table,
                 const Tensor& targets, const Tensor& segments, double z) {
  const size_t tokens = static_cast<size_t>(targets.size()), d = hidden.size() / tokens;
  double loss = 0;
  for (size_t t = 0; t < tokens; ++t) {
    if (segments.data<int32_t>()[t] == 0) continue;
    std::vector<double> logits(table.size() / d);
    double sum = 0;
    for (size_t v = 0; v < logits.size(); ++v) {
      for (size_t i = 0; i < d; ++i) logits[v] += hidden[t * d + i] * table[v * d + i];
      logits[v] /= std::sqrt(static_cast<double>(d));
      sum += std::exp(logits[v]);
    }
    const double lse = std::log(sum);
    loss += lse - logits[static_cast<size_t>(targets.data<int32_t>()[t])] + z * lse * lse;
  }
  return loss;
}

TEST(Loss, ZLossAgainstCentralDifferencesInDouble) {
  const Gemma3Config sizes = small_sizes();
  constexpr int64_t kRows = 2, kLength = 11;
  constexpr double kZ = 0.05, kStep = 1e-5;
  LossGraph g(sizes, kRows, kLength);
  g.tiled({1, kZ});
  g.tiled({7, kZ});
  g.tiled({7, 0});
  const std::vector<Tensor> in = loss_inputs(sizes, kRows, kLength);
  const std::vector<Tensor> out = testing::run(g.graph, in);
  std::vector<std::vector<double>> x;
  for (size_t k : {0, 1}) x.emplace_back(in[k].data<float>().begin(), in[k].data<float>().end());
  const double loss = host_loss(x[0], x[1], in[2], in[3], kZ);
  const double z_loss = loss - host_loss(x[0], x[1], in[2], in[3], 0);
  for (size_t k : {0, 1}) {
    std::vector<double> direction(x[k].size());
    for (size_t i = 0; i < direction.size(); ++i) {
      direction[i] = static_cast<double>(random_bits_at(random_key(9 + k), i)) * 0x1p-31 - 1;
    }
    const auto loss_at = [&](double step, double z) {
      auto y = x;
      for (size_t i = 0; i < direction.size(); ++i) y[k][i] += step * direction[i];
      return host_loss(y[0], y[1], in[2], in[3], z);
    };
    for (size_t run = 0; run < 3; ++run) {
      const double z = run < 2 ? kZ : 0;
      const double expected = (loss_at(kStep, z) - loss_at(-kStep, z)) / (2 * kStep);
      const std::vector<float> gradient = values_of<float>(out[5 * run + 3 + k]);
      double found = 0;
      for (size_t i = 0; i < direction.size(); ++i) {
        found += static_cast<double>(gradient[i]) * direction[i];
      }
      EXPECT_NEAR(found, expected, 1e-5 * std::abs(expected)) << "input " << k << ", run " << run;
      if (run == 2) continue;
      EXPECT_NEAR(static_cast<double>(out[5 * run].data<float>()[0]) / loss, 1, 1e-6);
      EXPECT_NEAR(static_cast<double>(out[5 * run + 2].data<float>()[0]) / z_loss, 1, 1e-6);
    }
  }
}

TEST(Loss, TilesByTheSizeOfTheirLogits) {
  EXPECT_EQ(vocab_tiles(4096, 262144, 16), 16);
  EXPECT_EQ(vocab_tiles(10, 262144, 16), 10);  // no more tiles than tokens
  EXPECT_EQ(vocab_tiles(64, 256, 0), 1);
  EXPECT_EQ(vocab_tiles(4096, 262144, 0), 16);  // 256 tokens x 1 MiB
  EXPECT_EQ(vocab_tiles(4097, 262144, 0), 17);
}

// --- whole steps

std::string step_text(const Gemma3Config& sizes, const ModelOptions& options, StepOptions step) {
  Gemma3Model model(sizes, options, partitioner_of());
  nnx::Optimizer optimizer(model, nnx::sgd(), nnx::of_kind(nnx::VariableKind::kParam));
  return trace_train_step(model, optimizer, step)->lower().text();
}

// The logits of the whole batch, [16, 61] in whatever dimensions, never exist at once.
TEST(Step, HoldsTheLogitsOfOneTileOnly) {
  Gemma3Config sizes = small_sizes();
  sizes.vocab_size = 61;
  StepOptions step = testing::step_options(2, 8);
  const auto holds_whole = [&](int64_t tiles) {
    step.loss.num_vocab_tiling = tiles;
    const std::string text = step_text(sizes, small_options(), step);
    EXPECT_NE(text.find("x61xf32>"), std::string::npos);
    return text.find("<1x16x61x") != std::string::npos ||
           text.find("<16x61x") != std::string::npos || text.find("<2x8x61x") != std::string::npos;
  };
  EXPECT_TRUE(holds_whole(1));
  EXPECT_FALSE(holds_whole(4));
  EXPECT_FALSE(holds_whole(16));
}

// B14: programs that don't train have no dropout in them, whatever the rate.
TEST(Step, DropsOutInTrainingOnly) {
  const Gemma3Config sizes = small_sizes();
  ModelOptions with = small_options();
  with.dropout_rate = 0.5;
  const StepOptions step = testing::step_options(2, 8);
  Gemma3Model a(sizes, small_options(), partitioner_of()), b(sizes, with, partitioner_of());
  EXPECT_EQ(trace_logits(a, 2, 8)->lower().text(), trace_logits(b, 2, 8)->lower().text());
  EXPECT_EQ(trace_token_losses(a, step)->lower().text(),
            trace_token_losses(b, step)->lower().text());
  StepOptions off = step;
  off.enable_dropout = false;
  const std::string none = step_text(sizes, small_options(), step);
  EXPECT_EQ(step_text(sizes, with, off), none);
  EXPECT_NE(step_text(sizes, with, step), none);
}

// The same weights, optimizer state and batch give what the program's results are.
struct Stepper {
  Stepper(SmallRun& run, std::unique_ptr<nnx::Transform> transform, const StepOptions& options)
      : optimizer(*run.model, std::move(transform), nnx::of_kind(nnx::VariableKind::kParam)) {
    nnx::initialize(optimizer, run.devices, *run.partitioner, 0);
    traced = trace_train_step(*run.model, optimizer, options);
    program = std::make_unique<nnx::Compiled>(traced->lower().compile(run.devices));
  }
  std::vector<float> operator()(std::vector<Tensor> batch, float rate, int32_t step = 0) {
    batch.push_back(Tensor::of<float>(DType::kF32, {}, {rate}));
    batch.push_back(Tensor::of<int32_t>(DType::kS32, {}, {step}));
    return values_of<float>((*program)(batch)[0].to_host());
  }
  nnx::Optimizer optimizer;
  std::shared_ptr<const nnx::Traced> traced;
  std::unique_ptr<nnx::Compiled> program;
};

double norm(const std::map<std::string, std::vector<float>>& tensors) {
  double sum = 0;
  for (const auto& [name, values] : tensors) {
    for (const float x : values) sum += static_cast<double>(x) * static_cast<double>(x);
  }
  return std::sqrt(sum);
}

// p - rate * g, g cut to the threshold's norm; the metrics say both norms.
TEST(Step, SgdAndClipping) {
  const Gemma3Config sizes = small_sizes();
  const std::vector<Tensor> batch = random_batch(2, 8, sizes.vocab_size);
  StepOptions options = testing::step_options(2, 8);
  SmallRun reference(sizes);
  const auto expected = gradients_of(reference, batch, options);
  const double whole = norm(expected.gradients);
  for (const double threshold : {0.0, whole / 4, whole * 2}) {
    SCOPED_TRACE(threshold);
    options.gradient_clipping_threshold = threshold;
    const double factor = threshold > 0 && whole >= threshold ? threshold / whole : 1;
    SmallRun run(sizes);
    const auto before = testing::logical_weights(*run.model);
    Stepper step(run, nnx::sgd(), options);
    constexpr double kRate = 0.5;
    const std::vector<float> metrics = step(batch, static_cast<float>(kRate));
    EXPECT_NEAR(static_cast<double>(metrics[kLoss]), expected.loss, 1e-5);
    EXPECT_EQ(metrics[kTotalWeights], 16);
    EXPECT_NEAR(static_cast<double>(metrics[kRawGradNorm]) / whole, 1, 1e-5);
    EXPECT_NEAR(static_cast<double>(metrics[kGradNorm]) / (whole * factor), 1, 1e-5);
    const auto after = testing::logical_weights(*run.model);
    EXPECT_NEAR(static_cast<double>(metrics[kParamNorm]) / norm(after), 1, 1e-5);
    for (const auto& [name, gradient] : expected.gradients) {
      std::vector<float> wanted = before.at(name);
      for (size_t i = 0; i < wanted.size(); ++i) {
        wanted[i] -= static_cast<float>(kRate * factor * static_cast<double>(gradient[i]));
      }
      EXPECT_LE(relative_difference(after.at(name), wanted), 1e-6) << name;
    }
  }
}

// Microbatches of 16 and 3 targets: every token counts the same.
TEST(Step, AccumulationIsTheWholeBatch) {
  const Gemma3Config sizes = small_sizes();
  std::vector<Tensor> batch = random_batch(4, 8, sizes.vocab_size);
  for (size_t i = 0; i < 32; ++i) {
    const size_t row = i / 8;
    if (row % 2 == 1 && i % 8 >= (row == 1 ? 2U : 1U)) batch[4].mutable_data<int32_t>()[i] = 0;
  }
  SmallRun run(sizes);
  StepOptions options = testing::step_options(4, 8);
  const auto whole = gradients_of(run, batch, options);
  EXPECT_EQ(whole.weights, 19);
  options.gradient_accumulation_steps = 2;
  testing::expect_close(gradients_of(run, batch, options), whole, 2e-6);
}

// B15: three documents in a row, one that ends in EOS, one with id 0 in it; then in another order.
TEST(Step, WeighsByPositionNotByTokenOrSegmentNumber) {
  const std::vector<std::vector<int32_t>> documents{
      {2, 9, 17, 33, 1}, {2, 0, 5, 0, 40, 3}, {2, 50, 51}};
  constexpr int64_t kLength = 16;
  const auto pack = [&](const std::vector<size_t>& order) {
    std::vector<Tensor> batch(5);
    for (Tensor& t : batch) t = Tensor(DType::kS32, {1, kLength});
    size_t at = 0;
    int32_t segment = 0;
    for (const size_t d : order) {
      ++segment;
      for (size_t i = 0; i + 1 < documents[d].size(); ++i, ++at) {
        const int32_t values[] = {documents[d][i], documents[d][i + 1], static_cast<int32_t>(i),
                                  segment, segment};
        for (size_t k = 0; k < 5; ++k) batch[k].mutable_data<int32_t>()[at] = values[k];
      }
    }
    return batch;
  };
  SmallRun run(small_sizes());
  auto program =
      trace_gradients(*run.model, testing::step_options(1, kLength))->lower().compile(run.devices);
  const auto head = [&](const std::vector<size_t>& order) {
    return values_of<float>(program(pack(order))[0].to_host());
  };
  const std::vector<float> first = head({0, 1, 2}), second = head({2, 0, 1});
  EXPECT_EQ(first[1], 4 + 5 + 2);
  EXPECT_EQ(second[1], 11);
  EXPECT_NEAR(first[0], second[0], 2e-6F);
  const std::vector<float> alone[] = {head({0}), head({1}), head({2})};
  EXPECT_NEAR(first[0] * 11, alone[0][0] * 4 + alone[1][0] * 5 + alone[2][0] * 2, 1e-4F);
}

TEST(Step, ABatchWithoutTargetsIsFinite) {
  const Gemma3Config sizes = small_sizes();
  std::vector<Tensor> batch = random_batch(1, 8, sizes.vocab_size);
  batch[4] = Tensor(DType::kS32, {1, 8});
  SmallRun run(sizes);
  const auto found = gradients_of(run, batch, testing::step_options(1, 8));
  EXPECT_EQ(found.loss, 0);
  EXPECT_EQ(norm(found.gradients), 0);
}

// B13: float32 weights move at a rate of 1e-5, though activations are bfloat16.
TEST(Step, SmallRatesMoveWeightsUnderBfloat16) {
  Gemma3Config sizes = small_sizes();
  ModelOptions options = small_options();
  options.dtype = DType::kBF16;
  SmallRun run(sizes, options);
  const auto before = testing::logical_weights(*run.model);
  Stepper step(run, nnx::adamw({}), testing::step_options(2, 8));
  float loss = 0;
  for (int32_t s = 0; s < 50; ++s) loss = step(random_batch(2, 8, 64), 1e-5F, s)[kLoss];
  EXPECT_TRUE(std::isfinite(loss));
  int64_t moved = 0, all = 0;
  for (const auto& [name, values] : testing::logical_weights(*run.model)) {
    for (size_t i = 0; i < values.size(); ++i) moved += values[i] != before.at(name)[i] ? 1 : 0;
    all += static_cast<int64_t>(values.size());
  }
  EXPECT_GT(static_cast<double>(moved), 0.95 * static_cast<double>(all));
  for (const auto& [path, v] : nnx::variables(step.optimizer)) {
    if (!path.ends_with("count")) {
      EXPECT_EQ(v->array->dtype(), DType::kF32) << path;
    }
  }
}

// --- memory (B12)

TEST(Memory, ArgumentsAreStateAndBatchAndStateIsDonated) {
  Gemma3Config sizes = small_sizes(7);
  sizes.emb_dim = 64;
  sizes.mlp_dim = 256;
  sizes.vocab_size = 512;
  SmallRun run(sizes, small_options(), {"ici_fsdp_parallelism=4"});
  constexpr int64_t kRows = 4, kLength = 32;
  Stepper step(run, nnx::adamw({}), testing::step_options(kRows, kLength));
  const pjrt::ProgramMemory memory = step.program->executable().memory_stats();
  // By hand: weights and two moments, a quarter each but for the scales (whole on each device), the
  // step count; five arrays of a quarter of the batch; rate and step.
  const int64_t scales = 7 * (4 * 64 + 2 * 8) + 64;
  const int64_t state = 3 * 4 * ((sizes.parameter_count() - scales) / 4 + scales) + 4;
  const int64_t batch = 5 * 4 * kRows * kLength / 4 + 8;
  EXPECT_EQ(step.traced->argument_bytes(), state + batch);
  EXPECT_NEAR(static_cast<double>(memory.arguments), static_cast<double>(state + batch),
              0.01 * static_cast<double>(state + batch));
  EXPECT_NEAR(static_cast<double>(memory.aliased), static_cast<double>(state),
              0.01 * static_cast<double>(state));
  EXPECT_EQ(memory.total(),
            memory.arguments + memory.outputs - memory.aliased + memory.temporaries + memory.code);
}

// B12: the same step without donation holds the state twice, and gives the same numbers.
TEST(Memory, WithoutDonationTheStateIsThereTwice) {
  Gemma3Config sizes = small_sizes(1);
  sizes.emb_dim = 64;
  sizes.mlp_dim = 256;
  sizes.vocab_size = 512;
  StepOptions options = testing::step_options(4, 32);
  const std::vector<Tensor> batch = random_batch(4, 32, sizes.vocab_size);
  SmallRun a(sizes, small_options(), {"ici_fsdp_parallelism=4"});
  Stepper donating(a, nnx::adamw({}), options);
  options.donate = false;
  SmallRun b(sizes, small_options(), {"ici_fsdp_parallelism=4"});
  Stepper keeping(b, nnx::adamw({}), options);
  const pjrt::ProgramMemory with = donating.program->executable().memory_stats();
  const pjrt::ProgramMemory without = keeping.program->executable().memory_stats();
  EXPECT_GT(with.aliased, 0);
  EXPECT_EQ(without.aliased, 0);
  EXPECT_EQ(without.arguments, with.arguments);
  EXPECT_EQ(without.outputs, with.outputs);
  // By less than the whole state: new arrays serve as temporaries until they are written.
  EXPECT_LE(without.temporaries, with.temporaries);
  EXPECT_GT(without.total(), with.total());
  EXPECT_LE(without.total(), with.total() + with.aliased);
  // Old arrays stay readable, and the numbers are the same.
  const auto old = nnx::variables(*b.model).front().variable->array;
  const std::vector<float> first = values_of<float>(old->to_host());
  EXPECT_EQ(keeping(batch, 0.1F), donating(batch, 0.1F));
  EXPECT_EQ(testing::logical_weights(*b.model), testing::logical_weights(*a.model));
  EXPECT_EQ(values_of<float>(old->to_host()), first);
  EXPECT_NE(values_of<float>(nnx::variables(*b.model).front().variable->array->to_host()), first);
}

int64_t temporaries(const std::string& policy) {
  ModelOptions options = small_options();
  options.saved_tags = layers::saved_tags(policy);
  SmallRun run(small_sizes(12), options);
  return trace_gradients(*run.model, testing::step_options(4, 128))
      ->lower()
      .compile(run.devices)
      .executable()
      .memory_stats()
      .temporaries;
}

TEST(Memory, FullRematKeepsLessThanMinimal) {
  const int64_t full = temporaries("full"), minimal = temporaries("minimal_with_context");
  EXPECT_LT(full, minimal);
  // What minimal keeps beyond the layers' inputs: q, k, v, out, context, wi_0, wi_1, wo a token.
  const int64_t kept = 12 * 4 * 128 * 4 * (32 + 16 + 16 + 16 + 32 + 32 + 32 + 16);
  EXPECT_GT(minimal - full, kept / 2);
}

// --- random models

double first_loss(const std::vector<std::string>& words, int64_t rows, int64_t length) {
  const config::Config config = testing::config_of(words);
  SmallRun run(models::gemma3::sizes_from(config), models::gemma3::options_from(config));
  const StepOptions options = testing::step_options(rows, length);
  auto program = trace_token_losses(*run.model, options)->lower().compile(run.devices);
  double sum = 0;
  const int64_t vocab = run.model->config().vocab_size;
  for (const float x : values_of<float>(program(random_batch(rows, length, vocab))[0].to_host())) {
    sum += static_cast<double>(x);
  }
  return sum / static_cast<double>(rows * length) - std::log(static_cast<double>(vocab));
}

// Logits of a random model are N(0, 1), so the loss is ln V + 1/2; that holds while the input
// token's own logit, about sqrt(D / (1 + 2 layers)), is far below ln V. So width and depth are the
// published ones; heads, MLP and vocabulary are cut to what a test can hold.
TEST(RandomModel, FirstLossOfEverySizesWidthAndDepth) {
  for (const char* name : {"gemma3-270m", "gemma3-1b", "gemma3-4b", "gemma3-12b", "gemma3-27b"}) {
    const double above =
        first_loss({std::string("model_name=") + name, "override_model_config=true",
                    "base_num_query_heads=2", "base_num_kv_heads=1", "head_dim=16",
                    "base_mlp_dim=64", "vocab_size=16384", "dtype=float32"},
                   1, 512);
    EXPECT_NEAR(above, 0.5, 0.1) << name;
  }
}

TEST(RandomModel, FirstLossOfTheWhole270m) {
  EXPECT_NEAR(first_loss({"model_name=gemma3-270m", "dtype=float32"}, 1, 512), 0.5, 0.1);
}

}  // namespace
}  // namespace mt::train
