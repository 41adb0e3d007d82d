#include "config/yaml_file.h"

#include <yaml-cpp/yaml.h>

#include <set>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace mt::config {
namespace {

constexpr size_t kMaxBytes = 1 << 20;
constexpr size_t kMaxItems = 1000;   // of one list
constexpr size_t kMaxMeshAxes = 16;  // of one rule

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string read_bounded(const std::string& path) {
  const auto file = MappedFile::open(path);
  const size_t size = file->bytes().size();
  if (size > kMaxBytes) {
    throw fail(ErrorKind::kConfig, "{}: {} bytes, a configuration has at most {}", path, size,
               kMaxBytes);
  }
  std::string text(size, '\0');
  file->read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

// Thrown by the conversions below, without a place; callers add it.
[[noreturn]] void not_a(Type type) {
  throw fail(ErrorKind::kConfig, "expected {}", expected(type));
}

Value scalar(const YAML::Node& node, Type type) {
  if (node.IsNull() && type == Type::kText) return std::string();
  if (!node.IsScalar()) not_a(type);
  const bool quoted = node.Tag() == "!";
  if (quoted && type != Type::kText) not_a(type);
  std::optional<Value> value = parse_scalar(type, node.Scalar());
  if (!value) not_a(type);
  return *std::move(value);
}

std::vector<std::string> texts(const YAML::Node& node, Type type, size_t limit) {
  if (!node.IsSequence() || node.size() > limit) not_a(type);
  std::vector<std::string> out;
  for (const YAML::Node& item : node) {
    if (!item.IsScalar()) not_a(type);
    out.push_back(item.Scalar());
  }
  return out;
}

std::vector<sharding::AxisRule> rules(const YAML::Node& node) {
  if (!node.IsSequence() || node.size() > kMaxItems) not_a(Type::kRules);
  std::vector<sharding::AxisRule> out;
  for (const YAML::Node& item : node) {
    if (!item.IsSequence() || item.size() != 2 || !item[0].IsScalar()) not_a(Type::kRules);
    sharding::AxisRule rule{.logical = item[0].Scalar(), .mesh_axes = {}};
    if (item[1].IsScalar()) {
      rule.mesh_axes.push_back(item[1].Scalar());
    } else {
      rule.mesh_axes = texts(item[1], Type::kRules, kMaxMeshAxes);
    }
    out.push_back(std::move(rule));
  }
  return out;
}

Value convert(const YAML::Node& node, Type type) {
  if (type == Type::kList) return texts(node, type, kMaxItems);
  if (type == Type::kRules) return rules(node);
  return scalar(node, type);
}

}  // namespace

struct YamlFile::Nodes {
  std::vector<YAML::Node> values;
};

YamlFile::YamlFile(const std::string& path) : path_(path) {
  const std::string text = read_bounded(path);
  auto nodes = std::make_shared<Nodes>();
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1) {
      throw fail(ErrorKind::kConfig, "{}:{}: a second document (---); expected one", path,
                 documents[1].Mark().line + 1);
    }
    const YAML::Node root = documents.empty() ? YAML::Node() : documents[0];
    if (root.IsNull()) {
      nodes_ = nodes;
      return;  // an empty file sets nothing
    }
    if (!root.IsMap()) {
      throw fail(ErrorKind::kConfig, "{}:1: expected a map of key: value lines", path);
    }
    std::set<std::string> seen;
    for (const auto& pair : root) {
      const int line = pair.first.Mark().line + 1;
      if (!pair.first.IsScalar()) {
        throw fail(ErrorKind::kConfig, "{}:{}: a key must be a plain text", path, line);
      }
      const std::string key = pair.first.Scalar();
      if (!seen.insert(key).second) {
        throw fail(ErrorKind::kConfig, "{}:{}: key '{}' is set twice", path, line, first_line(key));
      }
      entries_.push_back({key, line});
      nodes->values.push_back(pair.second);
    }
  } catch (const YAML::Exception& e) {
    throw fail(ErrorKind::kConfig, "{}:{}: not valid YAML: {}", path, e.mark.line + 1,
               first_line(e.msg));
  }
  nodes_ = std::move(nodes);
}

Value YamlFile::value(size_t index, Type type) const {
  const Entry& entry = entries_[index];
  try {
    return convert(nodes_->values[index], type);
  } catch (const Error& e) {
    throw fail(ErrorKind::kConfig, "{}:{}: key '{}': {}", path_, entry.line, entry.key, e.what());
  }
}

Value parse_yaml_word(Type type, std::string_view text) {
  try {
    return convert(YAML::Load(std::string(text)), type);
  } catch (const YAML::Exception& e) {
    throw fail(ErrorKind::kConfig, "not valid YAML: {}", first_line(e.msg));
  }
}

}  // namespace mt::config
