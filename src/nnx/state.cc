#include "nnx/state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"

namespace mt::nnx {
namespace {

std::string cut_path(const std::string& path, int depth) {
  size_t at = 0;
  for (int i = 0; i < depth; ++i) {
    at = path.find('/', at + (i > 0 ? 1 : 0));
    if (at == std::string::npos) return path;
  }
  return depth == 0 ? path : path.substr(0, at);
}

std::string size_text(int64_t count, int64_t bytes) {
  if (bytes >= 1 << 20)
    return fmt::format("{} ({:.1f} MiB)", count, static_cast<double>(bytes) / 1048576);
  return fmt::format("{} ({:.1f} KiB)", count, static_cast<double>(bytes) / 1024);
}

}  // namespace

const Variable* State::find(std::string_view path) const {
  for (const Entry& e : entries) {
    if (e.path == path) return &e.variable;
  }
  return nullptr;
}

int64_t State::element_count() const {
  int64_t n = 0;
  for (const Entry& e : entries) n += mt::element_count(e.variable.type.shape);
  return n;
}

int64_t State::byte_count() const {
  int64_t n = 0;
  for (const Entry& e : entries) {
    n += mt::element_count(e.variable.type.shape) * byte_size(e.variable.type.dtype);
  }
  return n;
}

State State::filter(const Filter& filter) const {
  State out;
  for (const Entry& e : entries) {
    if (filter(e.path, e.variable)) out.entries.push_back(e);
  }
  return out;
}

std::vector<ir::Value> State::values() const {
  std::vector<ir::Value> out;
  for (const Entry& e : entries) out.push_back(e.variable.value);
  return out;
}

State state(Module& module, const Filter& filter) {
  State out;
  for (const auto& [path, variable] : variables(module)) {
    if (filter(path, *variable)) out.entries.push_back({path, *variable});
  }
  return out;
}

std::vector<State> split(Module& module, const std::vector<Filter>& filters) {
  std::vector<State> out(filters.size());
  for (const auto& [path, variable] : variables(module)) {
    size_t i = 0;
    while (i < filters.size() && !filters[i](path, *variable)) ++i;
    if (i == filters.size()) {
      throw fail(ErrorKind::kConfig, "split: no filter takes {} ({})", path, name(variable->kind));
    }
    out[i].entries.push_back({path, *variable});
  }
  return out;
}

void update(Module& module, const State& state) {
  std::map<std::string, Variable*> by_path;
  for (const auto& [path, variable] : variables(module)) by_path[path] = variable;
  for (const State::Entry& e : state.entries) {
    const auto it = by_path.find(e.path);
    if (it == by_path.end()) {
      throw fail(ErrorKind::kConfig, "update: the module has no variable {}", e.path);
    }
    if (it->second->type != e.variable.type) {
      throw fail(ErrorKind::kConfig, "update: {} is {}, the state has {}", e.path,
                 to_string(it->second->type), to_string(e.variable.type));
    }
    it->second->value = e.variable.value;
    if (e.variable.array) it->second->array = e.variable.array;
  }
}

void merge(Module& module, const std::vector<State>& states) {
  for (const State& s : states) update(module, s);
}

State eval_shape(Module& module) {
  State out = state(module);
  for (State::Entry& e : out.entries) {
    e.variable.value = {};
    e.variable.array = nullptr;
  }
  return out;
}

std::string tabulate(Module& module, int depth) {
  struct Row {
    std::string path, kind, shape, axes;
    int64_t count = 0, bytes = 0;
  };
  std::vector<Row> rows;
  std::map<std::string, std::pair<int64_t, int64_t>> totals;
  for (const auto& [path, v] : variables(module)) {
    const int64_t count = element_count(v->type.shape);
    const int64_t bytes = count * byte_size(v->type.dtype);
    const std::string kind(name(v->kind)), group = cut_path(path, depth);
    totals[kind].first += count;
    totals[kind].second += bytes;
    if (!rows.empty() && rows.back().path == group && group != path) {
      rows.back().count += count;
      rows.back().bytes += bytes;
      rows.back().shape = rows.back().axes = "...";
      if (rows.back().kind != kind) rows.back().kind = "mixed";
    } else {
      rows.push_back({group, kind, to_string(v->type), fmt::format("{}", fmt::join(v->axes, ", ")),
                      count, bytes});
    }
  }
  size_t w0 = 4, w2 = 5, w3 = 4;
  for (const Row& r : rows) {
    w0 = std::max(w0, r.path.size());
    w2 = std::max(w2, r.shape.size());
    w3 = std::max(w3, r.axes.size());
  }
  const auto line = [&](std::string_view a, std::string_view b, std::string_view c,
                        std::string_view d, std::string_view e) {
    return fmt::format("{:<{}} | {:<12} | {:<{}} | {:<{}} | {}\n", a, w0, b, c, w2, d, w3, e);
  };
  std::string out = line("path", "kind", "shape", "axes", "size");
  out += std::string(out.size() - 1, '-') + "\n";
  for (const Row& r : rows)
    out += line(r.path, r.kind, r.shape, r.axes, size_text(r.count, r.bytes));
  for (const auto& [kind, t] : totals) {
    out += fmt::format("Total {}: {}\n", kind, size_text(t.first, t.second));
  }
  return out;
}

std::string display(Module& module) {
  std::string out;
  std::vector<std::string> shown;
  for (const auto& [path, v] : variables(module)) {
    size_t begin = 0, level = 0;
    for (size_t slash; (slash = path.find('/', begin)) != std::string::npos; begin = slash + 1) {
      const std::string prefix = path.substr(0, slash);
      if (shown.size() <= level || shown[level] != prefix) {
        shown.resize(level);
        shown.push_back(prefix);
        out += fmt::format("{:{}}{}\n", "", 2 * level, path.substr(begin, slash - begin));
      }
      ++level;
    }
    shown.resize(std::min(shown.size(), level));
    out += fmt::format("{:{}}{}: {} {}\n", "", 2 * level, path.substr(begin), name(v->kind),
                       to_string(v->type));
  }
  return out;
}

}  // namespace mt::nnx
