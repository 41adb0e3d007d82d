#include "config/validate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <regex>
#include <string>
#include <vector>

#include "base/error.h"

namespace mt::config {
namespace {

void validate_model(const Config& config) {
  const int64_t head_dim = config.integer("head_dim");
  if (head_dim % 2 != 0) {
    throw fail(ErrorKind::kConfig, "head_dim={}: must be even (rotary embedding turns pairs)",
               head_dim);
  }
  const int64_t heads = config.integer("num_query_heads");
  const int64_t kv_heads = config.integer("num_kv_heads");
  if (heads % kv_heads != 0) {
    throw fail(ErrorKind::kConfig,
               "base_num_query_heads={} is not a multiple of base_num_kv_heads={}",
               config.integer("base_num_query_heads"), config.integer("base_num_kv_heads"));
  }
  if (config.integer("local_rope_max_timescale") < 1) {
    throw fail(ErrorKind::kConfig, "local_rope_max_timescale={}: must be -1 or at least 1",
               config.integer("local_rope_max_timescale"));
  }
}

// As a double: the products of sizes that no machine has leave 64 bits.
void validate_size(const Config& config) {
  const auto size = [&](const char* key) { return config.number(key); };
  const double heads = 2 * size("num_query_heads") + 2 * size("num_kv_heads");
  const double layer = size("emb_dim") * (heads * size("head_dim") + 3 * size("mlp_dim"));
  const double parameters =
      size("vocab_size") * size("emb_dim") + size("num_decoder_layers") * layer;
  constexpr double kMost = 1e15;
  if (parameters <= kMost) return;
  throw fail(ErrorKind::kConfig,
             "global_parameter_scale={} and the base sizes make a model of {:.1e} parameters: more "
             "than the {:.0e} that are possible",
             config.integer("global_parameter_scale"), parameters, kMost);
}

void validate_training(const Config& config) {
  if (config.integer("learning_rate_schedule_steps") < 1) {
    throw fail(ErrorKind::kConfig, "learning_rate_schedule_steps={}: must be -1 or at least 1",
               config.integer("learning_rate_schedule_steps"));
  }
  const int64_t tiles = config.integer("num_vocab_tiling");
  const double tokens = config.number("per_device_batch_size") * config.number("max_target_length");
  if (tiles > 0 && std::fmod(tokens, static_cast<double>(tiles)) != 0) {
    throw fail(ErrorKind::kConfig,
               "num_vocab_tiling={} doesn't divide the {} tokens of a device's batch "
               "(per_device_batch_size={} * max_target_length={})",
               tiles, tokens, config.number("per_device_batch_size"),
               config.integer("max_target_length"));
  }
}

void validate_data(const Config& config) {
  if (config.text("dataset_type") == "text" && config.text("dataset_path").empty()) {
    throw fail(ErrorKind::kConfig, "dataset_type=text needs dataset_path=FILE or FOLDER");
  }
}

// RE2, which XLA reads it with, knows neither of what is refused besides faults.
void validate_dump(const Config& config) {
  const std::string& pattern = config.text("dump_hlo_module_name");
  std::string reason;
  for (const char* part : {"(?=", "(?!", "(?<"}) {
    if (pattern.find(part) != std::string::npos) reason = fmt::format("{} is not supported", part);
  }
  try {
    const std::regex regex(pattern);
  } catch (const std::regex_error& error) {
    reason = error.what();
  }
  if (reason.empty()) return;
  throw fail(ErrorKind::kConfig, "dump_hlo_module_name={}: not a regular expression: {}", pattern,
             reason);
}

// Virtual devices cost memory and threads each: more than these are a slip of the keys.
void validate_cpu_devices(const Config& config) {
  constexpr int64_t kMost = 1024;
  const sharding::Parallelism parallelism = config.parallelism();
  const int64_t count = sharding::required_devices(parallelism);  // throws if there is no mesh
  if (count <= kMost || config.text("hardware") != "cpu" || !config.text("pjrt_plugin").empty()) {
    return;
  }
  std::vector<std::string> keys;
  for (const sharding::AxisParallelism& axis : parallelism.axes) {
    if (axis.ici > 1) keys.push_back(fmt::format("ici_{}_parallelism={}", axis.key, axis.ici));
    if (axis.dcn > 1) keys.push_back(fmt::format("dcn_{}_parallelism={}", axis.key, axis.dcn));
  }
  if (keys.empty()) keys.push_back(fmt::format("num_slices={}", parallelism.num_slices));
  throw fail(ErrorKind::kConfig, "{}: {} CPU devices, at most {} can be made",
             fmt::join(keys, " * "), count, kMost);
}

}  // namespace

void validate(const Config& config) {
  validate_model(config);
  validate_size(config);
  validate_training(config);
  validate_data(config);
  validate_dump(config);
  validate_cpu_devices(config);
}

}  // namespace mt::config
