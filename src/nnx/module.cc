#include "nnx/module.h"

#include "base/error.h"

namespace mt::nnx {
namespace {

std::string join(const std::string& prefix, std::string_view name) {
  if (prefix.empty()) return std::string(name);
  return name.empty() ? prefix : prefix + "/" + std::string(name);
}

class Walker final : public Visitor {
 public:
  explicit Walker(Module& root) {
    found_modules.emplace_back("", &root);
    root.visit(*this);
  }
  void variable(std::string_view name, Variable& v) override {
    found.push_back({join(path_, name), &v});
  }
  void module(std::string_view name, Module& m) override {
    const std::string outer = path_;
    path_ = join(path_, name);
    found_modules.emplace_back(path_, &m);
    m.visit(*this);
    path_ = outer;
  }
  std::vector<NamedVariable> found;
  std::vector<std::pair<std::string, Module*>> found_modules;

 private:
  std::string path_;
};

}  // namespace

std::vector<NamedVariable> variables(Module& root) { return Walker(root).found; }

std::vector<std::pair<std::string, Module*>> modules(Module& root) {
  return Walker(root).found_modules;
}

std::vector<Sown> pop_intermediates(Module& root) {
  std::vector<Sown> out;
  for (auto& [path, m] : modules(root)) {
    for (Sown& s : m->sown_) out.push_back({join(path, s.path), s.value});
    m->sown_.clear();
  }
  return out;
}

Binding::Binding(const std::vector<NamedVariable>& variables,
                 const std::vector<ir::Value>& values) {
  MT_CHECK(values.size() >= variables.size());
  for (size_t i = 0; i < variables.size(); ++i) {
    saved_.emplace_back(variables[i].variable, variables[i].variable->value);
    variables[i].variable->value = values[i];
  }
}

Binding::~Binding() {
  for (auto& [variable, value] : saved_) variable->value = value;
}

}  // namespace mt::nnx
