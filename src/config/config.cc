#include "config/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "config/keys.h"
#include "config/paths.h"
#include "config/settings.h"
#include "config/validate.h"
#include "sharding/axes.h"

namespace mt::config {
namespace {

using Rules = std::vector<sharding::AxisRule>;
using Values = std::map<std::string, Value, std::less<>>;

std::string quoted(const std::vector<std::string>& names) { return to_text(Value(names)); }

// The part of an axis's keys between ici_ and _parallelism.
std::string axis_key(const std::string& axis) { return axis == "stage" ? "pipeline" : axis; }

int64_t scaled(int64_t base, int doublings, const char* key) {
  if (base > (int64_t{1} << 31) >> doublings) {
    throw fail(ErrorKind::kConfig, "{}={} times 2^{}: too large", key, base, doublings);
  }
  return base << doublings;
}

// MaxText's turns: a factor of 8 doubles every dimension, the factors between them first heads and
// mlp, then emb.
void derive_sizes(Values& values) {
  const int64_t scale = std::get<int64_t>(values["global_parameter_scale"]);
  if (!std::has_single_bit(static_cast<uint64_t>(scale))) {
    throw fail(ErrorKind::kConfig, "global_parameter_scale={}: must be a power of two", scale);
  }
  const int log2 = std::countr_zero(static_cast<uint64_t>(scale));
  const int layers = log2 / 3, heads = layers + (log2 % 3 > 0), emb = layers + (log2 % 3 > 1);
  const auto derive = [&](const char* key, int doublings) {
    const std::string base = fmt::format("base_{}", key);
    values[key] = scaled(std::get<int64_t>(values[base]), doublings, base.c_str());
  };
  derive("emb_dim", emb);
  derive("num_query_heads", heads);
  derive("num_kv_heads", heads);
  derive("mlp_dim", heads);
  derive("num_decoder_layers", layers);
}

void derive_steps(Values& values) {
  auto& steps = std::get<int64_t>(values["steps"]);
  auto& schedule = std::get<int64_t>(values["learning_rate_schedule_steps"]);
  if (steps == -1 && schedule == -1) {
    throw fail(ErrorKind::kConfig,
               "steps=-1 and learning_rate_schedule_steps=-1: one of them must be a number");
  }
  if (schedule == -1) schedule = std::max<int64_t>(steps, 1);
  if (steps == -1) steps = schedule;
}

void derive_model(Values& values) {
  auto& local = std::get<int64_t>(values["local_rope_max_timescale"]);
  if (local == -1) local = std::get<int64_t>(values["rope_max_timescale"]);
  auto& scalar = std::get<double>(values["query_pre_attn_scalar"]);
  if (scalar == 0) scalar = static_cast<double>(std::get<int64_t>(values["head_dim"]));
  auto& mu_dtype = std::get<std::string>(values["mu_dtype"]);
  if (mu_dtype.empty()) mu_dtype = std::get<std::string>(values["weight_dtype"]);
}

void derive_paths(Values& values, const std::map<std::string, std::string>& environment) {
  const auto variable = [&](const char* name) {
    const auto it = environment.find(name);
    return it == environment.end() ? std::string() : it->second;
  };
  auto& run = std::get<std::string>(values["run_name"]);
  if (run.empty()) run = variable("JOBSET_NAME");
  check_run_name(run);
  const std::string home = home_folder(environment);
  for (const char* key :
       {"base_output_directory", "jax_cache_dir", "pjrt_plugin", "dataset_path", "tokenizer_path",
        "load_parameters_path", "metrics_file", "dump_hlo_local_dir"}) {
    // MaxText's commands name a bucket here, which synthetic data does not read.
    if (key == std::string_view("dataset_path") &&
        std::get<std::string>(values["dataset_type"]) == "synthetic") {
      continue;
    }
    auto& path = std::get<std::string>(values[key]);
    path = local_path(key, path, home);
  }
  std::string base = std::get<std::string>(values["base_output_directory"]);
  if (!base.empty() && !base.ends_with('/')) base += '/';
  for (const char* kind : {"tensorboard", "checkpoints", "metrics"}) {
    const std::string key =
        fmt::format("{}_dir", kind == std::string_view("checkpoints") ? "checkpoint" : kind);
    values[key] =
        base.empty() || run.empty() ? std::string() : fmt::format("{}{}/{}/", base, run, kind);
  }
}

void check_axis_names(const std::vector<std::string>& mesh_axes, const Rules& rules) {
  const auto known = [](const std::string& name) {
    return std::find(sharding::kMeshAxes.begin(), sharding::kMeshAxes.end(), name) !=
           sharding::kMeshAxes.end();
  };
  for (size_t i = 0; i < mesh_axes.size(); ++i) {
    if (!known(mesh_axes[i])) {
      throw fail(ErrorKind::kConfig, "mesh_axes: unknown axis '{}'; there are {}", mesh_axes[i],
                 fmt::join(sharding::kMeshAxes, ", "));
    }
    if (std::count(mesh_axes.begin(), mesh_axes.end(), mesh_axes[i]) > 1) {
      throw fail(ErrorKind::kConfig, "mesh_axes: '{}' stands there twice", mesh_axes[i]);
    }
  }
  for (const sharding::AxisRule& rule : rules) {
    for (const std::string& axis : rule.mesh_axes) {
      if (!known(axis)) {
        throw fail(ErrorKind::kConfig, "logical_axis_rules: {}: unknown mesh axis '{}'",
                   rule.logical, axis);
      }
    }
  }
}

}  // namespace

struct Config::State {
  Settings settings;
  Values values;  // all keys and the derived ones

  template <typename T>
  const T& get(std::string_view key) const {
    const auto it = values.find(key);
    MT_CHECK(it != values.end());
    const T* value = std::get_if<T>(&it->second);
    MT_CHECK(value != nullptr);
    return *value;
  }
};

Config Config::load(const std::vector<std::string>& args,
                    const std::map<std::string, std::string>& environment) {
  auto state = std::make_shared<State>();
  state->settings = read_settings(args, environment);
  Values& values = state->values;
  for (size_t i = 0; i < all_keys().size(); ++i) {
    values.emplace(all_keys()[i]->name, state->settings.values[i]);
  }
  values["config_path"] = state->settings.config_path;
  derive_sizes(values);
  derive_steps(values);
  derive_model(values);
  derive_paths(values, environment);
  Config config(std::move(state));
  check_axis_names(config.list("mesh_axes"), config.logical_axis_rules());
  validate(config);
  return config;
}

int64_t Config::integer(std::string_view key) const { return state_->get<int64_t>(key); }
bool Config::flag(std::string_view key) const { return state_->get<bool>(key); }
const std::string& Config::text(std::string_view key) const {
  return state_->get<std::string>(key);
}
const std::vector<std::string>& Config::list(std::string_view key) const {
  return state_->get<std::vector<std::string>>(key);
}
const Rules& Config::logical_axis_rules() const { return state_->get<Rules>("logical_axis_rules"); }

double Config::number(std::string_view key) const {
  const auto it = state_->values.find(key);
  MT_CHECK(it != state_->values.end());
  if (const auto* whole = std::get_if<int64_t>(&it->second)) return static_cast<double>(*whole);
  return state_->get<double>(key);
}

sharding::Parallelism Config::parallelism() const {
  sharding::Parallelism out{.axes = {}, .num_slices = integer("num_slices")};
  const std::vector<std::string>& axes = list("mesh_axes");
  for (const std::string_view name : sharding::kMeshAxes) {
    const std::string key = axis_key(std::string(name));
    const std::string ici_key = fmt::format("ici_{}_parallelism", key);
    const std::string dcn_key = fmt::format("dcn_{}_parallelism", key);
    if (std::find(axes.begin(), axes.end(), name) != axes.end()) continue;
    for (const std::string& size : {ici_key, dcn_key}) {
      if (integer(size) > 1) {
        throw fail(ErrorKind::kConfig, "{}={} but mesh_axes has no '{}'", size, integer(size),
                   name);
      }
    }
  }
  for (const std::string& name : axes) {
    const std::string key = axis_key(name);
    out.axes.push_back({.name = name,
                        .ici = integer(fmt::format("ici_{}_parallelism", key)),
                        .dcn = integer(fmt::format("dcn_{}_parallelism", key)),
                        .key = key});
  }
  return out;
}

bool Config::was_set(std::string_view key) const {
  const int index = find_key(key);
  return index >= 0 && state_->settings.from_user[static_cast<size_t>(index)];
}

void Config::require_run_name() const {
  if (text("run_name").empty()) {
    throw fail(ErrorKind::kConfig,
               "Erroring out, need a real run_name: pass run_name=NAME or set JOBSET_NAME");
  }
}

std::vector<std::string> Config::log_lines() const {
  const Settings& settings = state_->settings;
  return {fmt::format("Updating keys from env and command line: {}", quoted(settings.user_keys)),
          fmt::format("Running Model: {}", text("model_name")),
          fmt::format("Updating keys from model: {}", quoted(settings.model_keys))};
}

std::vector<std::string> Config::warnings() const {
  std::vector<std::string> lines;
  if (text("weight_dtype") == "bfloat16") {
    lines.emplace_back(
        "weight_dtype=bfloat16: small updates round away and many weights never move; "
        "weight_dtype=float32 keeps them (dtype=bfloat16 alone computes as fast).");
  }
  return lines;
}

std::vector<std::pair<std::string, std::string>> Config::entries() const {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [key, value] : state_->values) out.emplace_back(key, to_text(value));
  return out;
}

std::vector<std::string> Config::dump() const {
  std::vector<std::string> lines;
  for (const auto& [key, value] : entries()) {
    lines.push_back(fmt::format("Config param {}: {}", key, value));
  }
  return lines;
}

std::map<std::string, std::string> process_environment() {
  std::map<std::string, std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      out.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

}  // namespace mt::config
