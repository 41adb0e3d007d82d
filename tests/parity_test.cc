// The numbers of a reference run of MaxText 0.2.5 (tests/golden/maxtext), over layouts of ours.
#include "train/parity.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "checkpoint/reader.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/test_files.h"

namespace mt::train {
namespace {

using checkpoint::testing::message_of;
using checkpoint::testing::TempFolder;
namespace fs = std::filesystem;

constexpr const char* kReference = MT_SOURCE_DIR "/tests/golden/maxtext";

std::vector<ParityRow> compare(const std::string& folder, std::vector<std::string> layout) {
  ::setenv("MAXTEXT_DEPS", MT_DEPS, 1);
  ::setenv("MAXTEXT_CONFIGS", MT_SOURCE_DIR "/configs", 1);
  layout.emplace_back("jax_cache_dir=");  // every program is compiled here and now
  return compare_with_reference(folder, layout);
}

// Two batches of logits, the loss, 106 gradients, five steps, 106 changes.
void expect_parity(const std::vector<std::string>& layout, size_t tensors) {
  const std::vector<ParityRow> rows = compare(kReference, layout);
  EXPECT_EQ(rows.size(), 2 + 1 + tensors + 5 + tensors);
  for (const ParityRow& row : rows) {
    EXPECT_TRUE(row.passed()) << row.what << ": " << row.difference << ", limit " << row.limit
                              << " (" << row.detail << ")";
  }
}

TEST(Parity, ScannedPlainAttention) {
  expect_parity({"scan_layers=true", "attention=dot_product"}, 106);
}

TEST(Parity, SeparateLayers) {
  expect_parity({"scan_layers=false", "attention=dot_product", "remat_policy=minimal"}, 106);
}

TEST(Parity, FlashInEightQueryBlocksOrFewer) {
  expect_parity({"attention=flash", "sa_block_q=8", "remat_policy=minimal_with_context"}, 106);
}

TEST(Parity, FlashInALoopOfBlocksWithARaggedEnd) {
  expect_parity({"attention=flash", "sa_block_q=3", "num_vocab_tiling=4"}, 106);
}

TEST(Parity, FourDevicesFsdp) {
  expect_parity({"attention=flash", "ici_fsdp_parallelism=4", "remat_policy=save_qkv_proj"}, 106);
}

TEST(Parity, FourDevicesFsdpAndTensor) {
  expect_parity({"attention=dot_product", "ici_fsdp_parallelism=2", "ici_tensor_parallelism=2"},
                106);
}

TEST(Parity, FourDevicesData) {
  expect_parity({"attention=flash", "ici_fsdp_parallelism=1", "ici_data_parallelism=4"}, 106);
}

// The rows of the packed batch hold 32 and 27 targets: only sums over tokens agree.
TEST(Parity, GradientAccumulation) {
  expect_parity({"attention=dot_product", "gradient_accumulation_steps=2"}, 106);
}

// A norm scale of the last layer that is one part in a hundred too large.
TEST(Parity, SeesASmallFault) {
  const TempFolder folder;
  for (const auto& entry : fs::directory_iterator(kReference)) {
    fs::copy_file(entry.path(), fs::path(folder.path()) / entry.path().filename());
  }
  const auto reader = checkpoint::open(folder / "params.safetensors");
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const std::string& name : reader->names()) {
    const Tensor t = reader->read(name);
    Tensor copy(t.dtype(), t.shape());
    std::copy(t.bytes().begin(), t.bytes().end(), copy.mutable_bytes().begin());
    if (name == "decoder.layers_remainder.layers_1.post_ffw_norm.scale") {
      for (float& x : copy.mutable_data<float>()) x *= 1.01F;
    }
    tensors.emplace_back(name, copy);
  }
  checkpoint::write_safetensors(folder / "params.safetensors", tensors);
  size_t logits = 0, gradients = 0;
  for (const ParityRow& row : compare(folder.path(), {"attention=dot_product"})) {
    if (row.passed()) continue;
    logits += row.what.starts_with("logits") ? 1 : 0;
    gradients += row.what.starts_with("gradient") ? 1 : 0;
  }
  EXPECT_EQ(logits, 2U);
  EXPECT_GT(gradients, 20U);
}

TEST(Parity, FaultsOfTheFolderAreOneLine) {
  const auto fault = [](const std::string& folder, std::vector<std::string> words) {
    const std::string text = message_of([&] { compare(folder, std::move(words)); });
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  };
  EXPECT_NE(fault("/nowhere", {}).find("/nowhere/goldens.json"), std::string::npos);
  EXPECT_NE(fault(kReference, {"attention"}).find("attention: expected key=value"),
            std::string::npos);
  const TempFolder folder;
  fs::copy_file(fs::path(kReference) / "goldens.json", folder / "goldens.json");
  EXPECT_NE(fault(folder.path(), {}).find("batches.safetensors"), std::string::npos);
  const std::string other = fault(kReference, {"base_mlp_dim=64"});
  EXPECT_NE(other.find("mlp"), std::string::npos) << other;
}

}  // namespace
}  // namespace mt::train
