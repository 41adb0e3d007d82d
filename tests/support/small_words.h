// The words of a configuration small enough to compile in a moment, for tests of the program.
#pragma once

#include <string>
#include <vector>

namespace mt::testing {

inline std::vector<std::string> small_words(const std::vector<std::string>& before,
                                            const std::vector<std::string>& after = {}) {
  std::vector<std::string> all = before;
  const std::vector<std::string> small{MT_SOURCE_DIR "/configs/base.yml",
                                       "model_name=gemma3-4b",
                                       "override_model_config=true",
                                       "base_emb_dim=16",
                                       "base_num_query_heads=2",
                                       "base_num_kv_heads=1",
                                       "head_dim=8",
                                       "base_mlp_dim=32",
                                       "vocab_size=304",
                                       "max_target_length=16",
                                       "per_device_batch_size=1",
                                       "dataset_type=synthetic",
                                       "dtype=float32",
                                       "jax_cache_dir="};
  all.insert(all.end(), small.begin(), small.end());
  all.insert(all.end(), after.begin(), after.end());
  return all;
}

}  // namespace mt::testing
