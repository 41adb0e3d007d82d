// Gemma 3 on the CPU plugin: the scanned model is the unscanned one, padding changes nothing, state
// is really sharded, and first values depend on the seed alone.
#include <gtest/gtest.h>

#include "nnx/optimizer.h"
#include "support/small_model.h"

namespace mt {
namespace {

using models::gemma3::Gemma3Config;
using models::gemma3::ModelOptions;
using testing::gradients_of;
using testing::random_batch;
using testing::small_options;
using testing::small_sizes;
using testing::SmallRun;
using testing::step_options;

Gemma3Config tiny_sizes(int64_t layers) {
  Gemma3Config c = small_sizes(layers);
  c.emb_dim = 8;
  c.num_query_heads = 2;
  c.num_kv_heads = 1;
  c.head_dim = 4;
  c.mlp_dim = 12;
  c.vocab_size = 24;
  return c;
}

// A17: full blocks, remainders, both.
class Remainders : public ::testing::TestWithParam<int64_t> {};

TEST_P(Remainders, ScannedEqualsSeparateLayers) {
  const Gemma3Config sizes = tiny_sizes(GetParam());
  ModelOptions separate = small_options();
  separate.scan_layers = false;
  SmallRun a(sizes), b(sizes, separate);
  EXPECT_EQ(nnx::state(*a.model).element_count(), nnx::state(*b.model).element_count());
  EXPECT_EQ(testing::logical_weights(*a.model), testing::logical_weights(*b.model))
      << "bit for bit";
  const std::vector<Tensor> batch = random_batch(2, 7, sizes.vocab_size);
  const auto x = gradients_of(a, batch, step_options(2, 7));
  const auto y = gradients_of(b, batch, step_options(2, 7));
  testing::expect_close(x, y, 1e-6);
}
INSTANTIATE_TEST_SUITE_P(Layers, Remainders, ::testing::Values(1, 2, 5, 6, 7, 8, 12, 13, 34));

TEST(ScannedLayers, StackAxisZeroIsTheSameModel) {
  const Gemma3Config sizes = tiny_sizes(12);
  ModelOptions first = small_options();
  first.param_scan_axis = 0;
  SmallRun a(sizes), b(sizes, first);
  EXPECT_EQ(testing::logical_weights(*a.model), testing::logical_weights(*b.model));
  const std::vector<Tensor> batch = random_batch(2, 7, sizes.vocab_size);
  testing::expect_close(gradients_of(b, batch, step_options(2, 7)),
                        gradients_of(a, batch, step_options(2, 7)), 1e-6);
}

// A15: rows of 2 and 40 tokens in a batch of 48, the padding (segment 0) behind or before them.
struct Padded {
  std::vector<Tensor> batch;
  int64_t starts[2];
};
constexpr int64_t kRowLengths[] = {2, 40}, kPadded = 48;

Padded padded_batch(const std::vector<Tensor>& whole, bool left) {
  Padded out{std::vector<Tensor>(5), {left ? kPadded - 2 : 0, left ? kPadded - 40 : 0}};
  for (size_t k = 0; k < 5; ++k) {
    out.batch[k] = Tensor(DType::kS32, {2, kPadded});
    for (int64_t r = 0; r < 2; ++r) {
      for (int64_t i = 0; i < kRowLengths[r]; ++i) {
        out.batch[k].mutable_data<int32_t>()[static_cast<size_t>(r * kPadded + out.starts[r] + i)] =
            whole[k].data<int32_t>()[static_cast<size_t>(r * 40 + i)];
      }
    }
  }
  return out;
}

std::vector<Tensor> one_row(const std::vector<Tensor>& whole, int64_t row) {
  std::vector<Tensor> out;
  for (const Tensor& t : whole) out.push_back(t.slice({row, 0}, {1, kRowLengths[row]}));
  return out;
}

std::vector<float> losses_of(SmallRun& run, const std::vector<Tensor>& batch) {
  const Shape& shape = batch[0].shape();
  auto program = train::trace_token_losses(*run.model, step_options(shape[0], shape[1]))
                     ->lower()
                     .compile(run.devices);
  return testing::values_of<float>(program(batch)[0].to_host());
}

class Padding : public ::testing::TestWithParam<layers::AttentionKind> {};

TEST_P(Padding, ChangesNoRealPosition) {
  ModelOptions options = small_options();
  options.attention = GetParam();
  options.flash.block_q = 16;
  SmallRun run(small_sizes(6), options);
  const std::vector<Tensor> whole = random_batch(2, 40, 64);
  const std::vector<float> alone[] = {losses_of(run, one_row(whole, 0)),
                                      losses_of(run, one_row(whole, 1))};
  double sum = 0;
  for (const auto& row : alone) {
    for (const float x : row) sum += static_cast<double>(x);
  }
  auto losses =
      train::trace_token_losses(*run.model, step_options(2, kPadded))->lower().compile(run.devices);
  auto gradients =
      train::trace_gradients(*run.model, step_options(2, kPadded))->lower().compile(run.devices);
  for (const bool left : {false, true}) {
    SCOPED_TRACE(left ? "left" : "right");
    const Padded padded = padded_batch(whole, left);
    const Tensor found = losses(padded.batch)[0].to_host();
    for (int64_t r = 0; r < 2; ++r) {
      for (int64_t i = 0; i < kPadded; ++i) {
        const float x = found.data<float>()[static_cast<size_t>(r * kPadded + i)];
        const int64_t at = i - padded.starts[r];
        const bool real = at >= 0 && at < kRowLengths[r];
        EXPECT_NEAR(x, real ? alone[r][static_cast<size_t>(at)] : 0, 1e-5F) << r << ", " << i;
      }
    }
    const auto results = gradients(padded.batch);
    const Tensor head = results[0].to_host();
    EXPECT_EQ(head.data<float>()[1], 42);
    EXPECT_NEAR(static_cast<double>(head.data<float>()[0]), sum / 42, 1e-5);
    for (const pjrt::Array& g : results) {
      for (const float x : testing::values_of<float>(g.to_host())) ASSERT_TRUE(std::isfinite(x));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Attention, Padding,
                         ::testing::Values(layers::AttentionKind::kDotProduct,
                                           layers::AttentionKind::kFlash),
                         [](const auto& test) {
                           const bool flash = test.param == layers::AttentionKind::kFlash;
                           return std::string(flash ? "Flash" : "DotProduct");
                         });

TEST(Sharding, ParametersAndMomentsLieOnFourDevicesInQuarters) {
  Gemma3Config sizes = small_sizes(7);
  sizes.emb_dim = 64;
  sizes.mlp_dim = 256;
  sizes.vocab_size = 512;
  SmallRun run(sizes, small_options(), {"ici_fsdp_parallelism=4"});
  nnx::Optimizer optimizer(*run.model, nnx::adamw({}), nnx::of_kind(nnx::VariableKind::kParam));
  nnx::initialize(optimizer, run.devices, *run.partitioner, 0);
  const int64_t total = 3 * 4 * sizes.parameter_count();
  EXPECT_EQ(nnx::state(*run.model).byte_count() + nnx::state(optimizer).byte_count(), total + 4);
  for (int64_t d = 0; d < 4; ++d) {
    int64_t bytes = 0;
    for (const auto& [path, v] : nnx::variables(*run.model)) bytes += v->array->bytes_on_device(d);
    for (const auto& [path, v] : nnx::variables(optimizer)) bytes += v->array->bytes_on_device(d);
    EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(total) / 4,
                0.02 * static_cast<double>(total) / 4);
  }
}

TEST(FirstValues, AreTheSameBitsOnAnyMesh) {
  const Gemma3Config sizes = small_sizes(7);
  SmallRun one(sizes);
  const auto expected = testing::logical_weights(*one.model);
  const std::vector<std::vector<std::string>> meshes{
      {"ici_fsdp_parallelism=4"},
      {"ici_fsdp_parallelism=2", "ici_tensor_parallelism=2"},
      {"ici_fsdp_parallelism=1", "ici_data_parallelism=4"}};
  for (const auto& mesh : meshes) {
    SmallRun run(sizes, small_options(), mesh);
    EXPECT_EQ(testing::logical_weights(*run.model), expected) << mesh[0];
  }
}

// Kernels have variance 1/fan_in, the table 1, scales are ones; no two tensors are alike.
TEST(FirstValues, HaveTheirVariances) {
  Gemma3Config sizes = small_sizes(7);
  sizes.emb_dim = 64;
  sizes.mlp_dim = 128;
  SmallRun run(sizes);
  std::map<float, std::string> firsts;
  for (const auto& [name, values] : testing::logical_weights(*run.model)) {
    double sum = 0, squares = 0;
    for (const float x : values) {
      sum += static_cast<double>(x);
      squares += static_cast<double>(x) * static_cast<double>(x);
    }
    const auto n = static_cast<double>(values.size());
    if (name.ends_with("scale")) {
      EXPECT_EQ(sum, n) << name;
      continue;
    }
    EXPECT_TRUE(firsts.emplace(values[0], name).second) << name << " = " << firsts[values[0]];
    double fan_in = 64;
    if (name.ends_with("embedding")) fan_in = 1;
    if (name.ends_with("wo/kernel")) fan_in = 128;
    if (name.ends_with("out/kernel")) fan_in = 4 * 8;
    EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n * fan_in)) << name;
    EXPECT_NEAR(squares / n * fan_in, 1, 5 * std::sqrt(2 / n)) << name;
  }
}

}  // namespace
}  // namespace mt
