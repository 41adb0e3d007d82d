// How a Gemma 3 model is run, as opposed to what it is (config.h).
#pragma once

#include <string>
#include <vector>

#include "layers/attention.h"

namespace mt::models::gemma3 {

enum class ModelMode : uint8_t { kTrain, kPrefill, kAutoregressive };

struct ModelOptions {
  DType dtype = DType::kBF16;        // of activations
  DType weight_dtype = DType::kF32;  // of parameters
  bool scan_layers = true;
  int64_t param_scan_axis = 1;
  layers::AttentionKind attention = layers::AttentionKind::kAutoselected;
  layers::FlashOptions flash;
  std::vector<std::string> saved_tags;  // layers/remat_policy.h
  double dropout_rate = 0;
  bool record_internal_nn_metrics = false;
  layers::CacheConfig cache;  // rows > 0: a model for prefill and generation
};

}  // namespace mt::models::gemma3
