#include "config/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "config/keys.h"
#include "config/packaged.h"
#include "config/suggest.h"
#include "config/yaml_file.h"

namespace mt::config {
namespace {

constexpr int kMaxBaseConfigs = 10;  // base_config of base_config of ...
constexpr std::string_view kEnvironmentPrefix = "M_";

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

bool is_config_file(const std::string& word) {
  return word.ends_with(".yml") || word.ends_with(".yaml") || word.find('=') == std::string::npos;
}

class Reader {
 public:
  explicit Reader(const std::map<std::string, std::string>& environment)
      : environment_(environment), packaged_(packaged_folder(environment)) {
    for (const Key* key : all_keys()) out_.values.push_back(default_value(*key));
    out_.from_user.resize(all_keys().size(), false);
  }

  Settings read(const std::vector<std::string>& args) {
    size_t first = 0;
    if (!args.empty() && is_config_file(args[0])) {
      out_.config_path = args[0];
      first = 1;
    } else if (!packaged_.empty()) {
      out_.config_path = packaged_ + "/base.yml";
    }
    if (!out_.config_path.empty()) read_config(out_.config_path, 0);
    read_command_line({args.begin() + static_cast<std::ptrdiff_t>(first), args.end()});
    read_environment();
    read_default_rules();  // after the words, whose faults are to be named first
    for (size_t i = 0; i < all_keys().size(); ++i) {
      if (out_.from_user[i]) out_.user_keys.emplace_back(all_keys()[i]->name);
    }
    read_model();
    for (size_t i = 0; i < all_keys().size(); ++i) check_value(*all_keys()[i], out_.values[i]);
    return std::move(out_);
  }

 private:
  Value& at(std::string_view name) { return out_.values[static_cast<size_t>(find_key(name))]; }

  // place: "" or "path:line: ".
  [[noreturn]] void unknown_key(const std::string& place, const std::string& key,
                                std::string_view otherwise) const {
    if (is_maxtext_key(packaged_, key)) {
      throw fail(ErrorKind::kConfig,
                 "{}Key {} is a MaxText key that isn't supported yet by maxtext.cpp.", place, key);
    }
    throw fail(ErrorKind::kConfig, "{}{}{}", place, otherwise, did_you_mean(key, all_names()));
  }

  size_t index_in(const YamlFile& file, const YamlFile::Entry& entry) const {
    const int index = find_key(entry.key);
    if (index < 0) {
      unknown_key(fmt::format("{}:{}: ", file.path(), entry.line), entry.key,
                  fmt::format("Key {} isn't known.", entry.key));
    }
    return static_cast<size_t>(index);
  }

  // Sets entry `i` of the file; a value that its key doesn't accept is reported with file:line.
  size_t set_from(const YamlFile& file, size_t i) {
    const YamlFile::Entry& entry = file.entries()[i];
    const size_t index = index_in(file, entry);
    const Key& key = *all_keys()[index];
    Value value = file.value(i, key.type);
    try {
      check_value(key, value);
    } catch (const Error& e) {
      throw fail(e.kind(), "{}:{}: {}", file.path(), entry.line, e.what());
    }
    if (key.type == Type::kRules) rules_read_ = true;
    out_.values[index] = std::move(value);
    return index;
  }

  std::string base_path(const YamlFile& file, const std::string& name, int line) const {
    if (name.starts_with('/')) return name;
    for (const std::string& folder : {folder_of(file.path()), packaged_}) {
      if (!folder.empty() && exists(folder + "/" + name)) return folder + "/" + name;
    }
    throw fail(ErrorKind::kConfig,
               "{}:{}: base_config: no {} beside the file or in the configs folder", file.path(),
               line, name);
  }

  void read_config(const std::string& path, int depth) {
    const YamlFile file(path);
    const auto& entries = file.entries();
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].key != "base_config") continue;
      if (depth == kMaxBaseConfigs) {
        throw fail(ErrorKind::kConfig, "{}:{}: more than {} files inherit from each other", path,
                   entries[i].line, kMaxBaseConfigs);
      }
      const std::string base = std::get<std::string>(file.value(i, Type::kText));
      if (!base.empty()) read_config(base_path(file, base, entries[i].line), depth + 1);
    }
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].key != "base_config") set_from(file, i);
    }
  }

  // The rules are too long for the table: a file without them gets those of the packaged base.yml.
  void read_default_rules() {
    if (rules_read_) return;
    if (packaged_.empty()) {
      throw fail(ErrorKind::kConfig,
                 "no logical_axis_rules: name a configuration file that has them, or set "
                 "MAXTEXT_CONFIGS to the configs folder");
    }
    const YamlFile file(packaged_ + "/base.yml");
    for (size_t i = 0; i < file.entries().size(); ++i) {
      if (file.entries()[i].key == "logical_axis_rules") set_from(file, i);
    }
  }

  static Value parse_word(const Key& key, const std::string& word) {
    std::string reason(expected(key.type));
    if (key.type == Type::kList || key.type == Type::kRules) {
      try {
        return parse_yaml_word(key.type, word);
      } catch (const Error& e) {
        reason = fmt::format("{} like [a, b]", reason);
      }
    } else if (std::optional<Value> value = parse_scalar(key.type, word)) {
      return *std::move(value);
    }
    throw fail(ErrorKind::kConfig,
               "Couldn't parse value from CLI or ENV '{}' for key '{}': expected {}", word,
               key.name, reason);
  }

  void set_from_user(size_t index, const std::string& word) {
    out_.values[index] = parse_word(*all_keys()[index], word);
    out_.from_user[index] = true;
    if (all_keys()[index]->type == Type::kRules) rules_read_ = true;
  }

  void read_command_line(const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      const size_t equals = word.find('=');
      if (equals == std::string::npos || equals == 0) {
        throw fail(ErrorKind::kConfig, "'{}' at the command line: expected key=value", word);
      }
      const std::string key = word.substr(0, equals);
      const int index = find_key(key);
      if (index < 0) {
        unknown_key("", key,
                    fmt::format("Key {} was passed at the command line but isn't in config.", key));
      }
      if (out_.from_user[static_cast<size_t>(index)]) {
        throw fail(ErrorKind::kConfig, "Key {} was passed twice at the command line.", key);
      }
      set_from_user(static_cast<size_t>(index), word.substr(equals + 1));
    }
  }

  void read_environment() {
    for (const auto& [name, word] : environment_) {
      if (!name.starts_with(kEnvironmentPrefix)) continue;
      const std::string key = lower(name.substr(kEnvironmentPrefix.size()));
      const int index = find_key(key);
      if (index < 0) unknown_variable(name, key);
      if (name != fmt::format("{}{}", kEnvironmentPrefix, upper(key))) {
        throw fail(ErrorKind::kConfig, "We received env `{}` but it isn't all uppercase.", name);
      }
      if (out_.from_user[static_cast<size_t>(index)]) {
        throw fail(ErrorKind::kConfig,
                   "You are passing overrides by both CLI and ENV for `{}`. This isn't allowed.",
                   key);
      }
      set_from_user(static_cast<size_t>(index), word);
    }
  }

  [[noreturn]] void unknown_variable(const std::string& name, const std::string& key) const {
    if (is_maxtext_key(packaged_, key)) unknown_key(fmt::format("env `{}`: ", name), key, "");
    const std::string near = nearest(key, all_names());
    throw fail(ErrorKind::kConfig,
               "We received env `{}` but it doesn't match a key, so it is assumed a mistake.{}",
               name, near.empty() ? "" : fmt::format(" Did you mean `M_{}`?", upper(near)));
  }

  std::string model_path(const std::string& model) const {
    const bool plain = !model.empty() && model[0] != '.' &&
                       std::all_of(model.begin(), model.end(), [](unsigned char c) {
                         return std::isalnum(c) || c == '-' || c == '_' || c == '.';
                       });
    std::vector<std::string> known;
    for (const std::string& folder : {folder_of(out_.config_path), packaged_}) {
      const std::string path = folder + "/models/" + model + ".yml";
      if (plain && !folder.empty() && exists(path)) return path;
      if (known.empty()) known = model_names(folder);
    }
    const std::vector<std::string_view> views(known.begin(), known.end());
    throw fail(ErrorKind::kConfig, "model_name={}: no such model; there are default, {}.{}", model,
               fmt::join(known, ", "), did_you_mean(model, views));
  }

  void read_model() {
    const std::string model = std::get<std::string>(at("model_name"));
    if (model == "default") return;
    const YamlFile file(model_path(model));
    const bool user_wins = std::get<bool>(at("override_model_config"));
    std::vector<std::string> twice;
    for (size_t i = 0; i < file.entries().size(); ++i) {
      const size_t index = index_in(file, file.entries()[i]);
      const Value before = out_.values[index];
      set_from(file, i);
      const Key& key = *all_keys()[index];
      if (out_.from_user[index]) {
        twice.push_back(fmt::format("'{}'", key.name));
        out_.values[index] = before;
        continue;
      }
      if (key.type == Type::kRules) merge_rules(index, before);
      out_.model_keys.emplace_back(key.name);
    }
    if (twice.empty() || user_wins) return;
    throw fail(ErrorKind::kConfig,
               "Keys [{}] are overwritten from both the model and the environment/command line. "
               "This isn't allowed. (override_model_config=true lets the command line win.)",
               fmt::join(twice, ", "));
  }

  void merge_rules(size_t index, const Value& before) {
    using Rules = std::vector<sharding::AxisRule>;
    Value& value = out_.values[index];
    value = sharding::replace_rules(std::get<Rules>(before), std::get<Rules>(value));
  }

  const std::map<std::string, std::string>& environment_;
  std::string packaged_;
  Settings out_;
  bool rules_read_ = false;
};

}  // namespace

Settings read_settings(const std::vector<std::string>& args,
                       const std::map<std::string, std::string>& environment) {
  return Reader(environment).read(args);
}

}  // namespace mt::config
