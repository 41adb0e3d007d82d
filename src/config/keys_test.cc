#include "config/keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "config/config.h"
#include "config/packaged.h"
#include "config/settings.h"
#include "config/suggest.h"
#include "config/yaml_file.h"

namespace mt::config {
namespace {

const std::string kConfigs = std::string(MT_SOURCE_DIR) + "/configs";

// Freezes the keys: a new one needs a line here, a row in the table and an entry in base.yml.
TEST(Keys, TheListIsFrozen) {
  std::vector<std::string> names(all_names().begin(), all_names().end());
  std::sort(names.begin(), names.end());
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  EXPECT_EQ(text, read_file(std::string(MT_SOURCE_DIR) + "/tests/golden/config_keys.txt"));
}

TEST(Keys, NamesAreUniqueAndRowsComplete) {
  const std::set<std::string_view> names(all_names().begin(), all_names().end());
  EXPECT_EQ(names.size(), all_names().size());
  for (const Key* key : all_keys()) {
    EXPECT_FALSE(key->help.empty()) << key->name;
    EXPECT_FALSE(key->read_in.empty()) << key->name;
    EXPECT_NO_THROW(check_value(*key, default_value(*key))) << key->name;
  }
}

// base.yml shows every key with the default that the table has.
TEST(Keys, BaseYmlIsTheTable) {
  const YamlFile file(kConfigs + "/base.yml");
  std::set<std::string> seen;
  for (size_t i = 0; i < file.entries().size(); ++i) {
    const std::string& name = file.entries()[i].key;
    const int index = find_key(name);
    ASSERT_GE(index, 0) << name;
    const Key& key = *all_keys()[static_cast<size_t>(index)];
    seen.insert(name);
    if (key.type == Type::kRules) continue;
    EXPECT_EQ(to_text(file.value(i, key.type)), to_text(default_value(key))) << name;
  }
  EXPECT_EQ(seen.size(), all_keys().size());
}

TEST(Keys, MaxTextsOtherKeysAreNoneOfOurs) {
  for (const std::string_view name : all_names()) {
    EXPECT_FALSE(is_maxtext_key(kConfigs, name)) << name;
  }
  EXPECT_TRUE(is_maxtext_key(kConfigs, "num_experts"));
  EXPECT_FALSE(is_maxtext_key(kConfigs, "num_expert"));
  EXPECT_FALSE(is_maxtext_key(kConfigs, ""));
  EXPECT_FALSE(is_maxtext_key("/nowhere", "num_experts"));
}

TEST(Keys, HelpNamesEveryKey) {
  const std::string text = help();
  for (const std::string_view name : all_names()) {
    EXPECT_NE(text.find("\n  " + std::string(name) + "="), std::string::npos) << name;
  }
  EXPECT_NE(text.find("\nOptimizer:\n  opt_type=adamw\n      Optimizer. One of: adamw, sgd.\n"),
            std::string::npos);
}

TEST(Value, PrintsAsPython) {
  EXPECT_EQ(to_text(Value(3e-5)), "3e-05");
  EXPECT_EQ(to_text(Value(12.0)), "12.0");
  EXPECT_EQ(to_text(Value(0.1)), "0.1");
  EXPECT_EQ(to_text(Value(int64_t{7})), "7");
  EXPECT_EQ(to_text(Value(false)), "False");
  EXPECT_EQ(to_text(Value(std::vector<sharding::AxisRule>{{"embed", {"fsdp"}}, {"kv", {}}})),
            "[['embed', ['fsdp']], ['kv', []]]");
}

TEST(Value, Numbers) {
  EXPECT_EQ(parse_scalar(Type::kNumber, "+2"), Value(2.0));
  EXPECT_EQ(parse_scalar(Type::kNumber, "1_0.5e-1"), Value(1.05));
  EXPECT_EQ(parse_scalar(Type::kNumber, ".5"), Value(0.5));
  EXPECT_EQ(parse_scalar(Type::kInteger, "-3"), Value(int64_t{-3}));
  for (const char* word : {"", "+", "+-3", "1.5.2", "1,5", "0x1p3", "infinity", "NaN"}) {
    EXPECT_EQ(parse_scalar(Type::kNumber, word), std::nullopt) << word;
  }
}

TEST(Suggest, NearNamesOnly) {
  const std::vector<std::string_view> names = {"steps", "log_period", "base_emb_dim", "seed"};
  EXPECT_EQ(nearest("stesp", names), "steps");
  EXPECT_EQ(nearest("LOG_PERIOD", names), "log_period");
  EXPECT_EQ(nearest("emb_dim", names), "base_emb_dim");
  EXPECT_EQ(nearest("xyz", names), "");
  EXPECT_EQ(nearest("", names), "");
  EXPECT_EQ(nearest(std::string(1000, 's'), names), "");
}

TEST(Packaged, ListsModels) {
  const std::vector<std::string> names = model_names(kConfigs);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::count(names.begin(), names.end(), "gemma3-270m"), 1);
  EXPECT_TRUE(model_names("/nowhere").empty());
}

}  // namespace
}  // namespace mt::config
