#include "config/config.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace mt::config {
namespace {

using Environment = std::map<std::string, std::string>;

const std::string kConfigs = std::string(MT_SOURCE_DIR) + "/configs";
const std::string kBase = kConfigs + "/base.yml";

Config load(std::vector<std::string> words, Environment environment = {}) {
  environment.emplace("MAXTEXT_CONFIGS", kConfigs);
  words.insert(words.begin(), kBase);
  return Config::load(words, environment);
}

std::string refusal(std::vector<std::string> words, Environment environment = {}) {
  try {
    load(std::move(words), std::move(environment));
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kConfig);
    return e.what();
  }
  return "accepted";
}

TEST(Config, TheReferenceCommand) {
  const Config config =
      load({"base_output_directory=/out", "dataset_path=/data", "run_name=gemma3-4b-after",
            "per_device_batch_size=4", "enable_checkpointing=false", "model_name=gemma3-4b",
            "ici_fsdp_parallelism=4", "steps=10", "max_target_length=4096",
            "async_checkpointing=false", "dataset_type=synthetic", "dtype=bfloat16",
            "weight_dtype=bfloat16", "scan_layers=True", "attention=flash"});
  config.require_run_name();
  EXPECT_EQ(config.integer("emb_dim"), 2560);
  EXPECT_EQ(config.integer("num_decoder_layers"), 34);
  EXPECT_EQ(config.integer("vocab_size"), 262144);
  EXPECT_EQ(config.integer("steps"), 10);
  EXPECT_EQ(config.integer("learning_rate_schedule_steps"), 10);
  EXPECT_DOUBLE_EQ(config.number("per_device_batch_size"), 4);
  EXPECT_DOUBLE_EQ(config.number("rope_max_timescale"), 1e6);
  EXPECT_TRUE(config.flag("scan_layers"));
  EXPECT_EQ(config.text("attention"), "flash");
  EXPECT_EQ(config.text("mu_dtype"), "bfloat16");
  EXPECT_EQ(config.text("tensorboard_dir"), "/out/gemma3-4b-after/tensorboard/");
  EXPECT_EQ(sharding::required_devices(config.parallelism()), 4);
  EXPECT_EQ(sharding::build_mesh(config.parallelism(), 4).axis_size("fsdp"), 4);
  EXPECT_TRUE(config.was_set("steps"));
  EXPECT_FALSE(config.was_set("head_dim"));
}

TEST(Config, LogLinesAsMaxTexts) {
  const Config config = load({"steps=3", "model_name=gemma3-4b"}, {{"M_RUN_NAME", "r"}});
  const std::vector<std::string> lines = config.log_lines();
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0],
            "Updating keys from env and command line: ['run_name', 'model_name', 'steps']");
  EXPECT_EQ(lines[1], "Running Model: gemma3-4b");
  EXPECT_EQ(lines[2],
            "Updating keys from model: ['base_num_decoder_layers', 'base_emb_dim', "
            "'base_num_query_heads', 'base_num_kv_heads', 'base_mlp_dim', 'head_dim', "
            "'vocab_size', 'decoder_block', 'mlp_activations', 'normalization_layer_epsilon', "
            "'logits_via_embedding', 'sliding_window_size', 'use_post_attn_norm', "
            "'use_post_ffw_norm', 'local_rope_max_timescale', "
            "'rope_max_timescale', 'rope_linear_scaling_factor']");
}

TEST(Config, DumpIsSortedAndAsPythonPrints) {
  const Config config = load({});
  const std::vector<std::string> lines = config.dump();
  EXPECT_TRUE(std::is_sorted(lines.begin(), lines.end(), [](const auto& a, const auto& b) {
    return a.substr(0, a.find(':')) < b.substr(0, b.find(':'));
  }));
  for (const char* line :
       {"Config param learning_rate: 3e-05", "Config param per_device_batch_size: 12.0",
        "Config param scan_layers: True", "Config param mlp_activations: ['gelu', 'linear']",
        "Config param emb_dim: 2048"}) {
    EXPECT_EQ(std::count(lines.begin(), lines.end(), line), 1) << line;
  }
}

// cases.md B9.
TEST(Overrides, ValuesOfTheWrongType) {
  EXPECT_EQ(refusal({"steps=abc"}),
            "Couldn't parse value from CLI or ENV 'abc' for key 'steps': expected an integer");
  EXPECT_EQ(refusal({"steps=1e3"}),
            "Couldn't parse value from CLI or ENV '1e3' for key 'steps': expected an integer");
  EXPECT_EQ(refusal({"steps="}),
            "Couldn't parse value from CLI or ENV '' for key 'steps': expected an integer");
  EXPECT_EQ(refusal({"steps=99999999999999999999"}),
            "Couldn't parse value from CLI or ENV '99999999999999999999' for key 'steps': "
            "expected an integer");
  EXPECT_EQ(refusal({"packing=yes"}),
            "Couldn't parse value from CLI or ENV 'yes' for key 'packing': expected true or false");
  EXPECT_EQ(refusal({"enable_checkpointing=yes"}),
            "Couldn't parse value from CLI or ENV 'yes' for key 'enable_checkpointing': expected "
            "true or false");
  for (const char* word : {"nan", "inf", "-inf", "1e999", "3e-5x"}) {
    EXPECT_EQ(refusal({std::string("learning_rate=") + word}),
              std::string("Couldn't parse value from CLI or ENV '") + word +
                  "' for key 'learning_rate': expected a finite number");
  }
  EXPECT_EQ(refusal({"mesh_axes=data"}),
            "Couldn't parse value from CLI or ENV 'data' for key 'mesh_axes': expected a list of "
            "texts like [a, b]");
}

TEST(Overrides, UnknownKeysGetTheNearestName) {
  EXPECT_EQ(refusal({"Steps=5"}),
            "Key Steps was passed at the command line but isn't in config. Did you mean 'steps'?");
  EXPECT_EQ(refusal({"stesp=5"}),
            "Key stesp was passed at the command line but isn't in config. Did you mean 'steps'?");
  EXPECT_EQ(refusal({"--steps=5"}),
            "Key --steps was passed at the command line but isn't in config. "
            "Did you mean 'steps'?");
  EXPECT_EQ(refusal({"emb_dim=5"}),
            "Key emb_dim was passed at the command line but isn't in config. "
            "Did you mean 'base_emb_dim'?");
  EXPECT_EQ(refusal({"qqqqqqqqqq=5"}),
            "Key qqqqqqqqqq was passed at the command line but isn't in config.");
  EXPECT_EQ(refusal({"foo"}), "'foo' at the command line: expected key=value");
  EXPECT_EQ(refusal({"=5"}), "'=5' at the command line: expected key=value");
}

TEST(Overrides, MaxTextKeysThatAreMissingHereSaySo) {
  EXPECT_EQ(refusal({"num_experts=8"}),
            "Key num_experts is a MaxText key that isn't supported yet by maxtext.cpp.");
  EXPECT_EQ(refusal({}, {{"M_NUM_EXPERTS", "8"}}),
            "env `M_NUM_EXPERTS`: Key num_experts is a MaxText key that isn't supported yet by "
            "maxtext.cpp.");
}

TEST(Overrides, ValuesThatAreMissingHereSaySo) {
  EXPECT_EQ(refusal({"enable_checkpointing=true"}),
            "enable_checkpointing=True isn't supported yet by maxtext.cpp (what works: false)");
  EXPECT_EQ(refusal({"profiler=xplane"}),
            "profiler=xplane isn't supported yet by maxtext.cpp (what works: \"\" (empty))");
  EXPECT_EQ(refusal({"dataset_type=tfds"}),
            "dataset_type=tfds isn't supported yet by maxtext.cpp (what works: synthetic, text)");
  EXPECT_EQ(refusal({"dataset_type=tdfs"}), "dataset_type=tdfs: not one of synthetic, text");
  EXPECT_EQ(refusal({"opt_type=adam_pax"}),
            "opt_type=adam_pax isn't supported yet by maxtext.cpp (what works: adamw, sgd)");
  EXPECT_EQ(refusal({"remat_policy=custom", "query_proj=offload"}),
            "query_proj=offload isn't supported yet by maxtext.cpp (what works: remat, device)");
  EXPECT_EQ(refusal({"remat_policy=custom", "decoder_layer_input=remat"}),
            "decoder_layer_input=remat: not one of device");
  EXPECT_EQ(refusal({"eval_interval=5"}),
            "eval_interval=5 isn't supported yet by maxtext.cpp (what works: -1)");
  EXPECT_EQ(refusal({"pure_nnx=false"}),
            "pure_nnx=False isn't supported yet by maxtext.cpp (what works: true)");
  EXPECT_EQ(refusal({"ici_pipeline_parallelism=2"}),
            "ici_pipeline_parallelism=2 isn't supported yet by maxtext.cpp (what works: 1)");
  EXPECT_EQ(refusal({"mlp_activations=[silu, linear]"}),
            "mlp_activations=['silu', 'linear'] isn't supported yet by maxtext.cpp "
            "(what works: ['gelu', 'linear'])");
  EXPECT_EQ(refusal({"dtype=float16"}),
            "dtype=float16 isn't supported: Gemma's activations leave its range; use bfloat16");
  EXPECT_EQ(refusal({"weight_dtype=float16"}),
            "weight_dtype=float16 isn't supported: Gemma's activations leave its range; "
            "use bfloat16");
}

TEST(Overrides, DefaultsOfMissingFeaturesAreAccepted) {
  EXPECT_EQ(refusal({"enable_checkpointing=False", "profiler=", "eval_interval=-1", "pure_nnx=TRUE",
                     "prompt=I love to", "skip_jax_distributed_system=True", "quantization="}),
            "accepted");
}

TEST(Overrides, AValueKeepsSpacesAndEqualsSigns) {
  EXPECT_EQ(load({"dataset_path=a=b c"}).text("dataset_path"), "a=b c");
  EXPECT_EQ(load({"run_name= x "}).text("run_name"), " x ");
  EXPECT_EQ(load({"prompt=a=b c"}).text("prompt"), "a=b c");
}

TEST(Overrides, AKeyTwice) {
  EXPECT_EQ(refusal({"steps=5", "steps=5"}), "Key steps was passed twice at the command line.");
  EXPECT_EQ(refusal({"learning_rate_final_fraction=0.2", "cosine_learning_rate_final_fraction=.3"}),
            "Key cosine_learning_rate_final_fraction was passed twice at the command line.");
}

TEST(Overrides, TheOlderNameOfAKey) {
  const Config config = load({"cosine_learning_rate_final_fraction=0.25"});
  EXPECT_DOUBLE_EQ(config.number("learning_rate_final_fraction"), 0.25);
  EXPECT_TRUE(config.was_set("learning_rate_final_fraction"));
}

TEST(Overrides, TheEnvironment) {
  EXPECT_EQ(load({}, {{"M_STEPS", "5"}, {"STEPS", "6"}}).integer("steps"), 5);
  EXPECT_EQ(refusal({}, {{"M_steps", "5"}}),
            "We received env `M_steps` but it isn't all uppercase.");
  EXPECT_EQ(refusal({}, {{"M_Steps", "5"}}),
            "We received env `M_Steps` but it isn't all uppercase.");
  EXPECT_EQ(refusal({}, {{"M_FOO", "5"}}),
            "We received env `M_FOO` but it doesn't match a key, so it is assumed a mistake.");
  EXPECT_EQ(refusal({}, {{"M_STESP", "5"}}),
            "We received env `M_STESP` but it doesn't match a key, so it is assumed a mistake. "
            "Did you mean `M_STEPS`?");
  EXPECT_EQ(refusal({"steps=5"}, {{"M_STEPS", "5"}}),
            "You are passing overrides by both CLI and ENV for `steps`. This isn't allowed.");
  EXPECT_EQ(refusal({}, {{"M_STEPS", "x"}}),
            "Couldn't parse value from CLI or ENV 'x' for key 'steps': expected an integer");
}

TEST(Overrides, OfWhatTheModelSets) {
  EXPECT_EQ(refusal({"model_name=gemma3-4b", "base_emb_dim=64", "head_dim=16"}),
            "Keys ['base_emb_dim', 'head_dim'] are overwritten from both the model and the "
            "environment/command line. This isn't allowed. "
            "(override_model_config=true lets the command line win.)");
  EXPECT_NE(refusal({"model_name=gemma3-4b"}, {{"M_BASE_EMB_DIM", "64"}}), "accepted");
  const Config config =
      load({"model_name=gemma3-4b", "base_emb_dim=64", "override_model_config=true"});
  EXPECT_EQ(config.integer("emb_dim"), 64);
  EXPECT_EQ(config.integer("num_decoder_layers"), 34);
  EXPECT_EQ(config.log_lines()[2].find("base_emb_dim"), std::string::npos);
}

TEST(Overrides, PythonsDigitSeparators) {
  EXPECT_EQ(load({"steps=1_000"}).integer("steps"), 1000);
  for (const char* word : {"steps=_1", "steps=1_", "steps=1__0", "steps=0x10", "steps= 5"}) {
    EXPECT_NE(refusal({word}), "accepted") << word;
  }
}

TEST(Models, AllSizes) {
  struct Row {
    const char* name;
    int64_t layers, emb, heads, kv_heads, head_dim, mlp, window;
    double scalar, factor;
  };
  for (const Row& row : {Row{"270m", 18, 640, 4, 1, 256, 2048, 512, 256, 1},
                         Row{"1b", 26, 1152, 4, 1, 256, 6912, 512, 256, 1},
                         Row{"4b", 34, 2560, 8, 4, 256, 10240, 1024, 256, 8},
                         Row{"12b", 48, 3840, 16, 8, 256, 15360, 1024, 256, 8},
                         Row{"27b", 62, 5376, 32, 16, 128, 21504, 1024, 168, 8}}) {
    const Config config = load({std::string("model_name=gemma3-") + row.name});
    EXPECT_EQ(config.integer("num_decoder_layers"), row.layers);
    EXPECT_EQ(config.integer("emb_dim"), row.emb);
    EXPECT_EQ(config.integer("num_query_heads"), row.heads);
    EXPECT_EQ(config.integer("num_kv_heads"), row.kv_heads);
    EXPECT_EQ(config.integer("head_dim"), row.head_dim);
    EXPECT_EQ(config.integer("mlp_dim"), row.mlp);
    EXPECT_EQ(config.integer("sliding_window_size"), row.window);
    EXPECT_EQ(config.number("query_pre_attn_scalar"), row.scalar);
    EXPECT_EQ(config.number("rope_linear_scaling_factor"), row.factor);
    EXPECT_EQ(config.integer("rope_max_timescale"), 1'000'000);
    EXPECT_EQ(config.integer("local_rope_max_timescale"), 10'000);
    EXPECT_EQ(config.number("normalization_layer_epsilon"), 1e-6);
    EXPECT_EQ(config.integer("vocab_size"), 262144);
  }
}

TEST(Models, UnknownNames) {
  EXPECT_EQ(refusal({"model_name=gemma3-5b"}),
            "model_name=gemma3-5b: no such model; there are default, gemma3-12b, gemma3-1b, "
            "gemma3-270m, gemma3-27b, gemma3-4b. Did you mean 'gemma3-1b'?");
  for (const char* name : {"", "../base", "/etc/passwd", ".hidden", "a/b"}) {
    EXPECT_NE(refusal({std::string("model_name=") + name}).find("no such model"), std::string::npos)
        << name;
  }
}

TEST(Derived, ParameterScaleTurnsTheDimensions) {
  struct Row {
    int64_t scale, emb, heads, layers;
  };
  for (const Row& row : {Row{1, 64, 4, 6}, Row{2, 64, 8, 6}, Row{4, 128, 8, 6}, Row{8, 128, 8, 12},
                         Row{16, 128, 16, 12}}) {
    const Config config = load({"base_emb_dim=64", "base_num_query_heads=4", "base_num_kv_heads=2",
                                "base_num_decoder_layers=6", "base_mlp_dim=8",
                                "global_parameter_scale=" + std::to_string(row.scale)});
    EXPECT_EQ(config.integer("emb_dim"), row.emb);
    EXPECT_EQ(config.integer("num_query_heads"), row.heads);
    EXPECT_EQ(config.integer("num_kv_heads"), row.heads / 2);
    EXPECT_EQ(config.integer("mlp_dim"), 2 * row.heads);
    EXPECT_EQ(config.integer("num_decoder_layers"), row.layers);
  }
  EXPECT_EQ(refusal({"global_parameter_scale=6"}),
            "global_parameter_scale=6: must be a power of two");
  EXPECT_EQ(refusal({"global_parameter_scale=4611686018427387904", "base_emb_dim=4096"}),
            "base_emb_dim=4096 times 2^21: too large");
}

TEST(Derived, Steps) {
  EXPECT_EQ(load({"steps=7"}).integer("learning_rate_schedule_steps"), 7);
  EXPECT_EQ(load({"steps=7", "learning_rate_schedule_steps=9"}).integer("steps"), 7);
  EXPECT_EQ(load({"steps=-1", "learning_rate_schedule_steps=9"}).integer("steps"), 9);
  EXPECT_EQ(load({"steps=0"}).integer("learning_rate_schedule_steps"), 1);
  EXPECT_EQ(refusal({"steps=-1"}),
            "steps=-1 and learning_rate_schedule_steps=-1: one of them must be a number");
  EXPECT_EQ(refusal({"steps=-2"}), "steps=-2: must be at least -1");
  EXPECT_EQ(refusal({"learning_rate_schedule_steps=0"}),
            "learning_rate_schedule_steps=0: must be -1 or at least 1");
}

TEST(Derived, RunNameAndFolders) {
  EXPECT_EQ(load({}, {{"JOBSET_NAME", "job"}}).text("run_name"), "job");
  EXPECT_EQ(load({"run_name=a"}, {{"JOBSET_NAME", "job"}}).text("run_name"), "a");
  try {
    load({}).require_run_name();
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "Erroring out, need a real run_name: pass run_name=NAME or set JOBSET_NAME");
  }
  const Config config = load({"run_name=a", "base_output_directory=/o/"});
  EXPECT_EQ(config.text("checkpoint_dir"), "/o/a/checkpoints/");
  EXPECT_EQ(config.text("metrics_dir"), "/o/a/metrics/");
  EXPECT_EQ(load({"run_name=a"}).text("tensorboard_dir"), "");
  EXPECT_EQ(load({}, {{"HOME", "/home/x"}}).text("jax_cache_dir"), "/home/x/jax_cache");
}

TEST(Derived, HomeIsNeverTheCurrentFolder) {
  for (const Environment& environment : {Environment{}, Environment{{"HOME", ""}}}) {
    EXPECT_TRUE(load({}, environment).text("jax_cache_dir").starts_with('/'));
    EXPECT_TRUE(load({"jax_cache_dir=~"}, environment).text("jax_cache_dir").starts_with('/'));
  }
  EXPECT_EQ(load({"dump_hlo_local_dir=~/d"}, {{"HOME", "/h"}}).text("dump_hlo_local_dir"), "/h/d");
  EXPECT_EQ(load({"metrics_file=a~/b"}, {{"HOME", "/h"}}).text("metrics_file"), "a~/b");
}

TEST(Derived, CloudStorageIsNoFolder) {
  for (const char* key : {"base_output_directory", "jax_cache_dir", "tokenizer_path",
                          "load_parameters_path", "metrics_file", "dump_hlo_local_dir"}) {
    EXPECT_EQ(refusal({std::string(key) + "=gs://bucket/x"}),
              std::string(key) +
                  "=gs://bucket/x: cloud storage and addresses are not supported, only files and "
                  "folders");
  }
  EXPECT_NE(refusal({"dataset_type=text", "dataset_path=s3://b"}), "accepted");
  EXPECT_EQ(refusal({"dataset_path=gs://maxtext-dataset"}), "accepted") << "synthetic reads none";
}

TEST(Derived, ARunStaysInItsFolder) {
  for (const char* name : {"..", "../x", "a/../../x", "a/.."}) {
    EXPECT_EQ(refusal({std::string("run_name=") + name}),
              std::string("run_name=") + name + ": would lie outside base_output_directory");
  }
  EXPECT_NE(refusal({}, {{"JOBSET_NAME", "../x"}}), "accepted");
  for (const char* name : {"a..b", "...", "a/b"}) {
    EXPECT_EQ(refusal({std::string("run_name=") + name}), "accepted");
  }
}

TEST(Derived, ModelNumbers) {
  const Config config = load({"head_dim=32", "rope_max_timescale=5000"});
  EXPECT_DOUBLE_EQ(config.number("query_pre_attn_scalar"), 32);
  EXPECT_EQ(config.integer("local_rope_max_timescale"), 5000);
  EXPECT_EQ(load({"weight_dtype=float32", "mu_dtype=bfloat16"}).text("mu_dtype"), "bfloat16");
}

TEST(Limits, OfSingleKeys) {
  EXPECT_EQ(refusal({"per_device_batch_size=0"}), "per_device_batch_size=0.0: must be more than 0");
  EXPECT_EQ(refusal({"max_target_length=0"}),
            "max_target_length=0: must be at least 1 and at most 2147483647");
  EXPECT_EQ(refusal({"warmup_steps_fraction=1.5"}),
            "warmup_steps_fraction=1.5: must be at least 0 and at most 1");
  EXPECT_EQ(refusal({"dropout_rate=1"}), "dropout_rate=1.0: must be at least 0 and less than 1");
  EXPECT_EQ(refusal({"learning_rate=-1"}), "learning_rate=-1.0: must be at least 0");
  EXPECT_EQ(refusal({"z_loss_multiplier=1e300"}),
            "z_loss_multiplier=1e+300: too large for float32");
  EXPECT_EQ(refusal({"adam_eps=1e-50"}), "adam_eps=1e-50: too small for float32");
  for (const char* key : {"learning_rate", "adam_weight_decay", "adam_eps_root",
                          "gradient_clipping_threshold", "decode_sampling_temperature",
                          "rope_linear_scaling_factor", "normalization_layer_epsilon"}) {
    EXPECT_NE(refusal({std::string(key) + "=1e39"}).find("too large"), std::string::npos) << key;
    EXPECT_NE(refusal({std::string(key) + "=1e-39"}).find("too small"), std::string::npos) << key;
    EXPECT_EQ(refusal({std::string(key) + "=3e38"}), "accepted") << key;
  }
  EXPECT_NE(refusal({"query_pre_attn_scalar=1e-300"}), "accepted");
  EXPECT_EQ(refusal({"dtype=int8"}), "dtype=int8: not one of bfloat16, float32");
  EXPECT_EQ(refusal({"attention=falsh"}),
            "attention=falsh: not one of autoselected, dot_product, flash");
  EXPECT_NE(refusal({"remat_policy=fulll"}).find("remat_policy=fulll: not one of none, full,"),
            std::string::npos);
}

TEST(Limits, ModelsThatLeave64Bits) {
  EXPECT_EQ(refusal({"model_name=gemma3-270m", "global_parameter_scale=1099511627776"}),
            "global_parameter_scale=1099511627776 and the base sizes make a model of 1.1e+20 "
            "parameters: more than the 1e+15 that are possible");
  EXPECT_NE(refusal({"base_mlp_dim=2147483647", "base_emb_dim=2147483646"}), "accepted");
}

TEST(Limits, ThePatternOfADumpIsOne) {
  for (const char* pattern : {"[", "(", "a{2", "*", "(?=x)", "(?!x)", "(?<=x)", "a\\"}) {
    const std::string text = refusal({std::string("dump_hlo_module_name=") + pattern});
    EXPECT_TRUE(text.starts_with(std::string("dump_hlo_module_name=") + pattern +
                                 ": not a regular expression: "))
        << text;
  }
  for (const char* pattern : {"", "jit_.*", "(?:a|b)+", "^jit_\\w+$", "[[:alpha:]]"}) {
    EXPECT_EQ(refusal({std::string("dump_hlo_module_name=") + pattern}), "accepted") << pattern;
  }
}

TEST(Limits, BetweenKeys) {
  EXPECT_EQ(refusal({"head_dim=15"}), "head_dim=15: must be even (rotary embedding turns pairs)");
  EXPECT_EQ(refusal({"base_num_query_heads=6", "base_num_kv_heads=4"}),
            "base_num_query_heads=6 is not a multiple of base_num_kv_heads=4");
  EXPECT_EQ(refusal({"num_vocab_tiling=3", "per_device_batch_size=1", "max_target_length=32"}),
            "num_vocab_tiling=3 doesn't divide the 32 tokens of a device's batch "
            "(per_device_batch_size=1 * max_target_length=32)");
  EXPECT_EQ(refusal({"dataset_type=text"}), "dataset_type=text needs dataset_path=FILE or FOLDER");
  EXPECT_EQ(refusal({"ici_tensor_parallelism=-1"}),
            "ici_fsdp_parallelism and ici_tensor_parallelism are both -1: only one of them can "
            "take what is left");
  EXPECT_EQ(refusal({"mesh_axes=[data, fsdp]", "ici_tensor_parallelism=2"}),
            "ici_tensor_parallelism=2 but mesh_axes has no 'tensor'");
  EXPECT_EQ(refusal({"mesh_axes=[data, fdsp]"}),
            "mesh_axes: unknown axis 'fdsp'; there are data, stage, fsdp, fsdp_transpose, "
            "sequence, context, context_autoregressive, tensor, tensor_transpose, "
            "tensor_sequence, expert, autoregressive");
  EXPECT_EQ(refusal({"mesh_axes=[data, data]"}), "mesh_axes: 'data' stands there twice");
  EXPECT_EQ(refusal({"logical_axis_rules=[[embed, [fsdpp]]]"}),
            "logical_axis_rules: embed: unknown mesh axis 'fsdpp'");
}

TEST(Warnings, Bfloat16Weights) {
  EXPECT_TRUE(load({}).warnings().empty());
  const auto lines = load({"weight_dtype=bfloat16"}).warnings();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("weight_dtype=float32"), std::string::npos);
}

// Shapes of facts as MaxText resolves them, through the shipped rules.
TEST(Rules, TheShippedOnesSplitParametersAsMaxText) {
  const Config config = load({"ici_fsdp_parallelism=2", "ici_tensor_parallelism=2"});
  const sharding::Mesh mesh = sharding::build_mesh(config.parallelism(), 4);
  const auto spec = [&](const std::vector<std::string>& names) {
    return to_string(sharding::resolve(config.logical_axis_rules(), mesh, names));
  };
  EXPECT_EQ(spec({"vocab", "embed"}), "P(tensor, fsdp)");
  EXPECT_EQ(spec({"embed", "layers", "q_heads", "kv"}), "P(fsdp, -, tensor, -)");
  EXPECT_EQ(spec({"embed", "layers", "kv_heads", "kv_head_dim"}), "P(fsdp, -, tensor, -)");
  EXPECT_EQ(spec({"heads", "layers", "kv", "embed"}), "P(tensor, -, -, fsdp)");
  EXPECT_EQ(spec({"embed", "layers", "mlp"}), "P(fsdp, -, tensor)");
  EXPECT_EQ(spec({"mlp", "layers", "embed"}), "P(tensor, -, fsdp)");
  EXPECT_EQ(spec({"norm", "layers"}), "P(tensor, -)");
  EXPECT_EQ(spec({"activation_batch", "activation_norm_length", "activation_embed"}),
            "P(fsdp, -, tensor)");
  EXPECT_EQ(
      spec({"activation_embed_and_logits_batch", "activation_length_no_exp", "activation_vocab"}),
      "P(fsdp, -, tensor)");
}

// A name's second and later rules, where another dimension has taken a mesh axis of the first.
TEST(Rules, TheShippedOnesFallBackInMaxTextsOrder) {
  const Config config =
      load({"ici_fsdp_parallelism=2", "ici_fsdp_transpose_parallelism=2",
            "ici_sequence_parallelism=2", "ici_context_parallelism=2", "ici_tensor_parallelism=2",
            "ici_tensor_transpose_parallelism=2", "ici_tensor_sequence_parallelism=2"});
  const sharding::Mesh mesh = sharding::build_mesh(config.parallelism(), 128);
  const auto spec = [&](const std::vector<std::string>& names) {
    return to_string(sharding::resolve(config.logical_axis_rules(), mesh, names));
  };
  EXPECT_EQ(spec({"embed"}), "P((fsdp, fsdp_transpose, sequence, tensor_transpose, context))");
  EXPECT_EQ(
      spec({"embed", "mlp"}),
      "P((fsdp, sequence, tensor_transpose, context), (fsdp_transpose, tensor, tensor_sequence))");
  EXPECT_EQ(
      spec({"embed", "vocab"}),
      "P((fsdp, fsdp_transpose, sequence, context), (tensor, tensor_transpose, tensor_sequence))");
  EXPECT_EQ(spec({"activation_vocab"}), "P((tensor, tensor_transpose, sequence, tensor_sequence))");
  EXPECT_EQ(spec({"activation_length_no_exp", "activation_vocab"}),
            "P((sequence, context), (tensor, tensor_transpose))");
  EXPECT_EQ(spec({"activation_length_no_exp", "activation_embed", "activation_vocab"}),
            "P((sequence, context), (tensor, tensor_transpose), tensor_sequence)");
  EXPECT_EQ(spec({"activation_mlp", "activation_vocab"}),
            "P((tensor, tensor_transpose, tensor_sequence), (sequence, context))");
  EXPECT_EQ(spec({"activation_mlp", "activation_norm_length", "activation_vocab"}),
            "P(-, (tensor_sequence, context, sequence), (tensor, tensor_transpose))");
  EXPECT_EQ(spec({"activation_heads", "activation_length", "activation_kv_length"}),
            "P((tensor, tensor_transpose, sequence, tensor_sequence), context, -)");
  EXPECT_EQ(spec({"activation_heads", "activation_length_no_exp"}),
            "P((tensor, tensor_transpose, sequence, tensor_sequence), context)");
  // The last one only helps meshes and arrays that Gemma doesn't have.
  std::vector<sharding::AxisRule> embed;
  for (const auto& rule : config.logical_axis_rules()) {
    if (rule.logical == "embed") embed.push_back(rule);
  }
  ASSERT_EQ(embed.size(), 4U);
  EXPECT_EQ(embed[3], (sharding::AxisRule{"embed", {"fsdp", "sequence", "context", "expert"}}));
}

TEST(Rules, SequenceParallelLogitsFallBack) {
  const Config config =
      load({"ici_fsdp_parallelism=1", "ici_sequence_parallelism=2", "ici_tensor_parallelism=2"});
  const sharding::Mesh mesh = sharding::build_mesh(config.parallelism(), 4);
  EXPECT_EQ(to_string(sharding::resolve(config.logical_axis_rules(), mesh,
                                        {"activation_embed_and_logits_batch",
                                         "activation_length_no_exp", "activation_vocab"})),
            "P(-, sequence, tensor)");
}

}  // namespace
}  // namespace mt::config
