#include "prove/inspect.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <typeinfo>

#include "models/gemma3/session.h"
#include "nnx/jit.h"
#include "prove/page.h"
#include "sharding/build_mesh.h"
#include "train/from_run.h"

namespace mt::prove {
namespace {

// "mt::models::gemma3::Gemma3Model" -> "Gemma3Model"
std::string type_name(const nnx::Module& module) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(typeid(module).name(), nullptr, nullptr, &status), std::free);
  const std::string name = status == 0 ? text.get() : typeid(module).name();
  const size_t colon = name.rfind(':');
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

VariableRow row_of(const std::string& path, const nnx::Variable& v,
                   const nnx::Partitioner& partitioner) {
  const auto type = nnx::array_type(path, v, partitioner);
  VariableRow row;
  row.path = path;
  row.kind = nnx::name(v.kind);
  row.dtype = v.type.dtype;
  row.shape = v.type.shape;
  row.shard_shape = type->shard_shape();
  row.axes = v.axes;
  row.axes.resize(row.shape.size());
  row.sharding = sharding::to_string(type->spec);
  row.elements = element_count(row.shape);
  row.bytes = row.elements * byte_size(row.dtype);
  row.bytes_per_device = element_count(row.shard_shape) * byte_size(row.dtype);
  return row;
}

bool is_below(const std::string& path, const std::string& module) {
  return module.empty() ||
         (path.size() > module.size() && path.starts_with(module) && path[module.size()] == '/');
}

std::vector<ModuleRow> rows_of(nnx::Module& root, const nnx::Partitioner& partitioner) {
  std::vector<ModuleRow> out;
  for (const auto& [path, module] : nnx::modules(root)) {
    ModuleRow row;
    row.path = path;
    row.type = type_name(*module);
    if (!path.empty()) row.depth = 1 + std::count(path.begin(), path.end(), '/');
    out.push_back(std::move(row));
  }
  for (const auto& [path, v] : nnx::variables(root)) {
    const VariableRow variable = row_of(path, *v, partitioner);
    ModuleRow* owner = nullptr;
    for (ModuleRow& m : out) {
      if (!is_below(path, m.path)) continue;
      m.elements += variable.elements;
      m.bytes += variable.bytes;
      m.bytes_per_device += variable.bytes_per_device;
      if (owner == nullptr || m.depth > owner->depth) owner = &m;
    }
    owner->variables.push_back(variable);
  }
  return out;
}

std::string size_text(int64_t bytes) {
  if (bytes >= int64_t{1} << 30) {
    return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / 1073741824.0);
  }
  if (bytes >= 1 << 20) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 1048576.0);
  return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024.0);
}

std::string type_text(DType dtype, const Shape& shape) {
  return std::string(name(dtype)) + to_string(shape);
}

std::string axes_text(const VariableRow& v) {
  std::vector<std::string> names;
  for (const std::string& a : v.axes) names.push_back(a.empty() ? "-" : a);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string last_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);  // npos + 1 == 0
}

using Cells = std::vector<std::string>;

const Cells kHead{"path", "type",     "elements",       "shape",
                  "axes", "sharding", "on each device", "bytes on each device"};

void add_rows(const std::vector<ModuleRow>& modules, int64_t depth, std::vector<Cells>& out) {
  for (const ModuleRow& m : modules) {
    if (depth > 0 && m.depth > depth) continue;
    const std::string indent(static_cast<size_t>(2 * m.depth), ' ');
    out.push_back({indent + (m.path.empty() ? "/" : last_name(m.path)), m.type,
                   fmt::format("{}", m.elements), "", "", "", "", size_text(m.bytes_per_device)});
    if (depth > 0 && m.depth == depth) continue;
    for (const VariableRow& v : m.variables) {
      out.push_back({indent + "  " + last_name(v.path), v.kind, fmt::format("{}", v.elements),
                     type_text(v.dtype, v.shape), axes_text(v), v.sharding,
                     type_text(v.dtype, v.shard_shape), size_text(v.bytes_per_device)});
    }
  }
}

std::string aligned(const std::vector<Cells>& rows) {
  std::vector<size_t> width(kHead.size(), 0);
  for (const Cells& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string out;
  for (const Cells& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const bool number = i == 2 || i == 7;
      line += number ? fmt::format("{:>{}}  ", row[i], width[i])
                     : fmt::format("{:<{}}  ", row[i], width[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string summary(const Inspection& i) {
  const ModuleRow& model = i.modules[0];
  const ModuleRow& optimizer = i.optimizer[0];
  return fmt::format(
      "{}: {} parameters, {} in all; {} device{}{}{}; on each device {} bytes of parameters and {} "
      "of optimizer state",
      i.model, model.elements, size_text(model.bytes), i.devices, i.devices == 1 ? "" : "s",
      i.mesh.empty() ? "" : ", ", fmt::join(i.mesh, " "), model.bytes_per_device,
      optimizer.bytes_per_device);
}

Json list_of(const std::vector<std::string>& texts) {
  Json::Array out;
  for (const std::string& t : texts) out.emplace_back(t);
  return out;
}

Json shape_json(const Shape& shape) {
  Json::Array out;
  for (const int64_t n : shape) out.emplace_back(n);
  return out;
}

Json modules_json(const std::vector<ModuleRow>& modules) {
  Json::Array out;
  for (const ModuleRow& m : modules) {
    Json::Array variables;
    for (const VariableRow& v : m.variables) {
      variables.emplace_back(Json::Object{{"path", v.path},
                                          {"kind", v.kind},
                                          {"dtype", std::string(name(v.dtype))},
                                          {"shape", shape_json(v.shape)},
                                          {"axes", list_of(v.axes)},
                                          {"sharding", v.sharding},
                                          {"shard_shape", shape_json(v.shard_shape)},
                                          {"elements", v.elements},
                                          {"bytes", v.bytes},
                                          {"bytes_per_device", v.bytes_per_device}});
    }
    out.emplace_back(Json::Object{{"path", m.path},
                                  {"type", m.type},
                                  {"elements", m.elements},
                                  {"bytes", m.bytes},
                                  {"bytes_per_device", m.bytes_per_device},
                                  {"variables", std::move(variables)}});
  }
  return out;
}

}  // namespace

Inspection inspect(const config::Config& config) {
  const int64_t devices = sharding::required_devices(config.parallelism());
  const auto partitioner = std::make_shared<nnx::Partitioner>(
      nnx::Partitioner{models::gemma3::mesh_from(config, devices), config.logical_axis_rules()});
  const auto model = models::gemma3::make_model(config, partitioner);
  const auto optimizer = train::make_optimizer(config, *model);
  Inspection out;
  out.model = config.text("model_name");
  out.devices = devices;
  for (const auto& axis : partitioner->mesh.axes) {
    if (axis.size > 1) out.mesh.push_back(fmt::format("{}={}", axis.name, axis.size));
  }
  out.modules = rows_of(*model, *partitioner);
  out.optimizer = rows_of(*optimizer, *partitioner);
  return out;
}

std::string to_text(const Inspection& inspection, int64_t depth) {
  std::vector<Cells> rows{kHead};
  add_rows(inspection.modules, depth, rows);
  return aligned(rows) + "\n" + summary(inspection) + "\n";
}

Json to_json(const Inspection& i) {
  return Json::Object{{"model_name", i.model},
                      {"devices", i.devices},
                      {"mesh", list_of(i.mesh)},
                      {"modules", modules_json(i.modules)},
                      {"optimizer", modules_json(i.optimizer)}};
}

std::string to_html(const Inspection& inspection) {
  Page page("maxtext inspect: " + inspection.model);
  page.paragraph(summary(inspection));
  const auto section = [&](const std::string& title, const std::vector<ModuleRow>& modules) {
    std::vector<Cells> rows;
    add_rows(modules, 0, rows);
    for (Cells& row : rows) {  // HTML folds spaces
      const size_t indent = row[0].find_first_not_of(' ');
      std::string path;
      for (size_t k = 0; k < indent; ++k) path += "\u00a0";
      row[0] = path + row[0].substr(indent);
    }
    page.heading(title);
    page.table(kHead, rows, {2, 7});
  };
  section("Model", inspection.modules);
  section("Optimizer state", inspection.optimizer);
  return page.html();
}

}  // namespace mt::prove
