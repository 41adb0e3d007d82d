#include "nnx/to_linen.h"

#include <algorithm>

#include "base/error.h"

namespace mt::nnx {
namespace {

constexpr std::string_view kIntermediates = "intermediates";

const LinenVariable& leaf_for(const Collections& variables, const std::string& path,
                              const Variable& v) {
  const std::string_view collection = collection_of(v.kind);
  const LinenVariable* leaf = variables.find(collection, path);
  if (leaf == nullptr) {
    throw fail(ErrorKind::kConfig, "apply: collection '{}' has no {}", collection, path);
  }
  if (leaf->type != v.type) {
    throw fail(ErrorKind::kConfig, "apply: {} of collection '{}' is {}, the module wants {}", path,
               collection, to_string(leaf->type), to_string(v.type));
  }
  if (!leaf->value) {
    throw fail(ErrorKind::kConfig, "apply: {} of collection '{}' has no value", path, collection);
  }
  return *leaf;
}

}  // namespace

Collection& Collections::at(std::string_view name) {
  for (Collection& c : collections_) {
    if (c.name == name) return c;
  }
  return collections_.emplace_back(Collection{std::string(name), {}});
}

const Collection* Collections::find(std::string_view name) const {
  for (const Collection& c : collections_) {
    if (c.name == name) return &c;
  }
  return nullptr;
}

const LinenVariable* Collections::find(std::string_view collection, std::string_view path) const {
  const Collection* c = find(collection);
  if (c == nullptr) return nullptr;
  for (const auto& [name, variable] : c->variables) {
    if (name == path) return &variable;
  }
  return nullptr;
}

LinenVariable* Collections::find(std::string_view collection, std::string_view path) {
  return const_cast<LinenVariable*>(std::as_const(*this).find(collection, path));
}

std::string_view collection_of(VariableKind kind) {
  switch (kind) {
    case VariableKind::kParam: return "params";
    case VariableKind::kBatchStat: return "batch_stats";
    case VariableKind::kCache: return "cache";
    case VariableKind::kIntermediate: return kIntermediates;
    case VariableKind::kOptState: return "opt_state";
    case VariableKind::kRngState: return "";
  }
  return "";
}

LinenVariable plain_leaf(const Variable& v) { return {v.type, {}, v.init, {}}; }

LinenVariable variable_to_logically_partitioned(const Variable& v) {
  LinenVariable leaf = plain_leaf(v);
  leaf.names = v.axes;
  leaf.names.resize(v.type.shape.size());
  return leaf;
}

Collections LinenModule::init() const {
  const std::unique_ptr<Module> module = make_();
  Collections out;
  for (const auto& [path, v] : variables(*module)) {
    const std::string_view collection = collection_of(v->kind);
    if (!collection.empty()) out.at(collection).variables.emplace_back(path, hook_(*v));
  }
  return out;
}

LinenResult LinenModule::apply(const Collections& given,
                               const std::vector<std::string>& mutable_names,
                               const Call& call) const {
  const std::unique_ptr<Module> module = make_();
  const std::vector<NamedVariable> vars = variables(*module);
  for (const auto& [path, v] : vars) {
    if (!collection_of(v->kind).empty()) v->value = leaf_for(given, path, *v).value;
  }
  const auto is_mutable = [&](std::string_view name) {
    return std::find(mutable_names.begin(), mutable_names.end(), name) != mutable_names.end();
  };
  LinenResult out;
  out.values = call(*module);
  for (const auto& [path, v] : vars) {
    const std::string_view collection = collection_of(v->kind);
    if (collection.empty()) continue;
    LinenVariable leaf = leaf_for(given, path, *v);
    if (is_mutable(collection)) {
      leaf.value = v->value;
      out.updates.at(collection).variables.emplace_back(path, std::move(leaf));
    } else if (v->value != leaf.value) {
      throw fail(ErrorKind::kConfig, "apply: {} has changed, but collection '{}' isn't mutable",
                 path, collection);
    }
  }
  for (Sown& s : pop_intermediates(*module)) {
    if (!is_mutable(kIntermediates)) continue;
    out.updates.at(kIntermediates)
        .variables.emplace_back(std::move(s.path), LinenVariable{s.value.type(), {}, {}, s.value});
  }
  return out;
}

}  // namespace mt::nnx
