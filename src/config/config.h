// The run's configuration: MaxText's keys, from a YAML file, the environment and the command line.
// Only commands and the trainer read it; layers and models take their own small structs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sharding/build_mesh.h"
#include "sharding/rules.h"

namespace mt::config {

class Config {
 public:
  // args: [CONFIG.yml] key=value ... (without a file: base.yml of the packaged configs folder).
  // environment: M_<KEY>=value settings, JOBSET_NAME (stands in for an empty run_name), HOME (for
  // ~/ in paths; else the system's list of users), and MAXTEXT_CONFIGS, the configs folder (else
  // found beside the program). Order: table defaults < CONFIG.yml (and its base_config) <
  // models/<model_name>.yml < M_* or command line; a key set by both of the last two needs
  // override_model_config=true. Throws kConfig, one line naming key, value and what was expected
  // (file:line for YAML), or kIo.
  static Config load(const std::vector<std::string>& args,
                     const std::map<std::string, std::string>& environment);

  // Values, after derivation. A key or type that the table does not have is our own bug.
  // Derived keys (not settable): integers emb_dim, num_query_heads, num_kv_heads, mlp_dim,
  // num_decoder_layers (base_* scaled by global_parameter_scale); texts tensorboard_dir,
  // checkpoint_dir, metrics_dir ("" without base_output_directory), config_path.
  // Resolved in place: steps and learning_rate_schedule_steps (-1), mu_dtype (""),
  // local_rope_max_timescale (-1), query_pre_attn_scalar (0 = head_dim), run_name ("" ->
  // JOBSET_NAME).
  int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;  // of an integer key too
  bool flag(std::string_view key) const;
  const std::string& text(std::string_view key) const;
  const std::vector<std::string>& list(std::string_view key) const;
  const std::vector<sharding::AxisRule>& logical_axis_rules() const;
  sharding::Parallelism parallelism() const;  // from mesh_axes, ici_*, dcn_*, num_slices

  // Whether the command line or an M_* variable set it.
  bool was_set(std::string_view key) const;

  // Throws kConfig ("Erroring out, need a real run_name ...") if run_name is empty. For train.
  void require_run_name() const;

  // "Updating keys from env and command line: [...]", "Running Model: ...",
  // "Updating keys from model: [...]".
  std::vector<std::string> log_lines() const;
  // Legal settings that people regret when they train (bfloat16 weights).
  std::vector<std::string> warnings() const;
  // "Config param KEY: VALUE", sorted by key.
  std::vector<std::string> dump() const;
  // The same as key -> value text, sorted; for TensorBoard's text page.
  std::vector<std::pair<std::string, std::string>> entries() const;

 private:
  struct State;
  explicit Config(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

// All keys by group: name, type, default, what it means, values. For --help; the group of that
// title comes first.
std::string help(std::string_view first = "");

// The process environment, as load() wants it.
std::map<std::string, std::string> process_environment();

}  // namespace mt::config
