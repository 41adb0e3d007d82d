#include "models/gemma3/weights_quantised.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/file.h"
#include "checkpoint/gguf.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/test_files.h"
#include "models/gemma3/to_gguf.h"
#include "models/gemma3/weight_names.h"

namespace mt::models::gemma3 {
namespace {

using checkpoint::testing::message_of;
using checkpoint::testing::TempFolder;

const std::string kHf = MT_SOURCE_DIR "/tests/golden/hf";
const std::string kMaxText = MT_SOURCE_DIR "/tests/golden/maxtext/params.safetensors";

Gemma3Config config_of(const std::string& path) {
  if (const auto config = WeightSource::open(path)->config()) return *config;
  Gemma3Config c = *WeightSource::open(kHf)->config();  // the same sizes
  c.num_decoder_layers = 8;
  return c;
}

std::unique_ptr<WeightSource> open_quantised(const std::string& path, Quantization to,
                                             bool decode = false) {
  return quantised(WeightSource::open(path), config_of(path), {to, path, decode});
}

std::vector<float> all_rows(const WeightSource& source, const NamedShape& w,
                            const StoredMatrix& m) {
  std::vector<float> out(static_cast<size_t>(m.rows * m.columns));
  source.read_rows(w.name, w.shape, m, [&](int64_t first, std::span<const float> rows) {
    std::copy(rows.begin(), rows.end(), out.begin() + first * m.columns);
  });
  return out;
}

// The float32 values that products with this matrix mean.
std::vector<float> meaning(const WeightSource& source, const NamedShape& w, const StoredMatrix& m) {
  const Tensor stored = source.read_stored(w.name, w.shape, m);
  const auto* format = checkpoint::find_block_format(static_cast<uint32_t>(m.block_type));
  std::vector<float> out(static_cast<size_t>(m.rows * m.columns));
  format->to_float(stored.bytes().data(), m.rows * m.columns / format->elements, out.data());
  return out;
}

double relative_error(const std::vector<float>& x, const std::vector<float>& y) {
  double error = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += std::pow(static_cast<double>(x[i] - y[i]), 2);
    size += std::pow(static_cast<double>(x[i]), 2);
  }
  return std::sqrt(error / size);
}

// The source's rows are what read() says: [out, in], the table as GGUF has it.
TEST(QuantisedWeights, AreNearTheFloats) {
  for (const std::string& path : {kHf, kMaxText}) {
    const auto floats = WeightSource::open(path);
    for (const Quantization to : {Quantization::kInt8, Quantization::kInt4}) {
      const auto source = open_quantised(path, to);
      for (const NamedShape& w : weight_shapes(config_of(path))) {
        SCOPED_TRACE(path + " " + w.name);
        const auto m = source->stored(w.name, w.shape, std::nullopt);
        const bool norm = parse_logical_name(w.name)->form == Form::kNorm;
        ASSERT_EQ(m.has_value(), !norm);
        if (norm) continue;
        ASSERT_EQ(m->dtype, DType::kU8);
        EXPECT_FALSE(m->multiplied);
        const bool table = w.name == kEmbeddingName;
        EXPECT_EQ(m->block_type, to == Quantization::kInt8 || table ? 8 : 2);
        Tensor expected = floats->read(w.name, w.shape, DType::kF32);
        if (!table) expected = expected.reshape({m->columns, m->rows}).transpose({1, 0});
        std::vector<float> x(expected.data<float>().begin(), expected.data<float>().end());
        const float scale = table ? std::sqrt(static_cast<float>(m->columns)) : 1.0F;
        for (float& v : x) v /= scale;
        EXPECT_LT(relative_error(x, all_rows(*source, w, *m)), 1e-6);
        const double error = relative_error(x, meaning(*source, w, *m));
        EXPECT_LT(error, m->block_type == 8 ? 0.006 : 0.09);
        EXPECT_GT(error, m->block_type == 8 ? 0.003 : 0.06);
      }
    }
  }
}

TEST(QuantisedWeights, AFileOfThemReadsBackTheSame) {
  const TempFolder folder;
  for (const std::string& path : {kHf, kMaxText}) {
    for (const Quantization to : {Quantization::kInt8, Quantization::kInt4}) {
      const Gemma3Config config = config_of(path);
      const auto source = open_quantised(path, to);
      const size_t size = write_gguf(folder / "x.gguf", *source, config, gguf_metadata(config, 7));
      EXPECT_EQ(read_file(folder / "x.gguf").size(), size);
      const auto back = WeightSource::open(folder / "x.gguf");
      back->check(weight_shapes(config));
      check_source_numbers(back->numbers(), config);
      EXPECT_EQ(back->config()->parameter_count(), config.parameter_count());
      for (const NamedShape& w : weight_shapes(config)) {
        SCOPED_TRACE(path + " " + w.name);
        const auto m = source->stored(w.name, w.shape, std::nullopt);
        const auto found = back->stored(w.name, w.shape, std::nullopt);
        ASSERT_EQ(m.has_value(), found.has_value());
        if (m) {
          EXPECT_EQ(found->block_type, m->block_type);
          EXPECT_EQ(found->shape(), m->shape());
          EXPECT_EQ(found->multiplied, m->multiplied);
        }
        const Tensor a = m ? source->read_stored(w.name, w.shape, *m)
                           : source->read(w.name, w.shape, DType::kF32);
        const Tensor b =
            m ? back->read_stored(w.name, w.shape, *m) : back->read(w.name, w.shape, DType::kF32);
        EXPECT_TRUE(std::ranges::equal(a.bytes(), b.bytes()));
      }
    }
  }
}

// All that config_from_gguf reads, with numbers that are no defaults of it.
TEST(QuantisedWeights, MetadataSayTheModel) {
  Gemma3Config c = config_of(kHf);
  c.head_dim = 32;
  c.sliding_window_size = 77;
  c.normalization_layer_epsilon = 3e-5;
  c.rope_max_timescale = 5e5;
  c.local_rope_max_timescale = 2e4;
  c.rope_linear_scaling_factor = 8;
  const TempFolder folder;
  checkpoint::GgufWriter writer(folder / "x.gguf", gguf_metadata(c, 2), {});
  writer.commit();
  const auto file = checkpoint::GgufFile::open(folder / "x.gguf");
  EXPECT_EQ(file->metadata("general.file_type")->as_int(), 2);
  for (const auto& [key, expected] :
       std::map<std::string, double>{{"block_count", c.num_decoder_layers},
                                     {"embedding_length", c.emb_dim},
                                     {"feed_forward_length", c.mlp_dim},
                                     {"attention.head_count", c.num_query_heads},
                                     {"attention.head_count_kv", c.num_kv_heads},
                                     {"attention.key_length", 32},
                                     {"attention.value_length", 32},
                                     {"attention.sliding_window", 77},
                                     {"attention.sliding_window_pattern", 6},
                                     {"attention.layer_norm_rms_epsilon", double{3e-5F}},
                                     {"rope.freq_base", 5e5},
                                     {"rope.freq_base_swa", 2e4},
                                     {"rope.scaling.factor", 8}}) {
    const auto* value = file->metadata("gemma3." + key);
    ASSERT_NE(value, nullptr) << key;
    EXPECT_EQ(value->as_double(), expected) << key;
  }
}

TEST(QuantisedWeights, BlocksAreRefusedOrDecodedOnDemand) {
  const TempFolder folder;
  const Gemma3Config config = config_of(kHf);
  const std::string path = folder / "x.gguf";
  const auto first = open_quantised(kHf, Quantization::kInt8);
  write_gguf(path, *first, config, gguf_metadata(config, 7));
  EXPECT_EQ(message_of([&] { open_quantised(path, Quantization::kInt4); }),
            path +
                ": quantised already (token_embedder/embedding is in blocks of Q8_0), and "
                "quantization=int4 is for floats; with dequantize_weights=true its blocks are "
                "decoded first");
  const auto again = open_quantised(path, Quantization::kInt8, true);
  const NamedShape w{"decoder/layers_1/mlp/wo/kernel", {config.mlp_dim, config.emb_dim}};
  const auto m = again->stored(w.name, w.shape, std::nullopt);
  EXPECT_TRUE(std::ranges::equal(again->read_stored(w.name, w.shape, *m).bytes(),
                                 first->read_stored(w.name, w.shape, *m).bytes()));
}

// The golden checkpoint with one value of one tensor replaced, or with fewer columns.
struct Changed {
  Changed(const std::string& name, float value) {
    const auto reader = checkpoint::open(kHf + "/model.safetensors");
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const std::string& n : reader->names()) {
      Tensor t(DType::kF32, reader->info(n).shape);
      reader->read_f32(n, 0, t.mutable_data<float>());
      if (n == name) t.mutable_data<float>().back() = value;
      tensors.emplace_back(n, t);
    }
    checkpoint::write_safetensors(folder / "model.safetensors", tensors);
    write_file(folder / "config.json", read_file(kHf + "/config.json"));
  }
  TempFolder folder;
};

TEST(QuantisedWeights, AValueThatNoBlockHoldsIsNamed) {
  for (const float value : {std::nanf(""), std::numeric_limits<float>::infinity(), -1e30F}) {
    const Changed changed("model.layers.2.mlp.down_proj.weight", value);
    const std::string& path = changed.folder.path();
    const Gemma3Config config = config_of(kHf);
    const TempFolder out;
    for (const auto& [to, format] :
         {std::pair{Quantization::kInt8, "Q8_0"}, std::pair{Quantization::kInt4, "Q4_0"}}) {
      const auto source = open_quantised(path, to);
      EXPECT_EQ(message_of(
                    [&] { write_gguf(out / "x.gguf", *source, config, gguf_metadata(config, 7)); }),
                path +
                    ": decoder/layers_2/mlp/wo/kernel: a value that is not finite, or too large "
                    "for blocks of " +
                    format);
      EXPECT_FALSE(exists(out / "x.gguf"));
    }
  }
}

// 40 columns are no whole blocks; 64 are.
TEST(QuantisedWeights, RowsThatDontDivideIntoBlocksStayFloats) {
  Gemma3Config config = config_of(kHf);
  config.mlp_dim = 40;
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const NamedShape& w : weight_shapes(config)) {
    Tensor t(DType::kBF16, w.shape);
    for (size_t i = 0; i < static_cast<size_t>(t.size()); ++i) {
      t.mutable_data<BFloat16>()[i] = BFloat16::from_float(static_cast<float>(i % 97) - 40.0F);
    }
    std::string dotted = w.name;
    std::replace(dotted.begin(), dotted.end(), '/', '.');
    tensors.emplace_back(dotted, t);
  }
  const TempFolder folder;
  checkpoint::write_safetensors(folder / "x.safetensors", tensors);
  const auto floats = WeightSource::open(folder / "x.safetensors");
  const auto source = quantised(WeightSource::open(folder / "x.safetensors"), config,
                                {Quantization::kInt4, "x", false});
  write_gguf(folder / "x.gguf", *source, config, gguf_metadata(config, 2));
  const auto back = WeightSource::open(folder / "x.gguf");
  const NamedShape down{"decoder/layers_3/mlp/wo/kernel", {40, 64}};
  EXPECT_TRUE(std::ranges::equal(back->read(down.name, down.shape, DType::kF32).bytes(),
                                 floats->read(down.name, down.shape, DType::kF32).bytes()));
  EXPECT_EQ(back->stored(down.name, down.shape, std::nullopt)->dtype, DType::kF32);
  EXPECT_EQ(back->stored("decoder/layers_3/mlp/wi_0/kernel", {64, 40}, std::nullopt)->dtype,
            DType::kU8);
}

}  // namespace
}  // namespace mt::models::gemma3
