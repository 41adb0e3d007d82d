#include "ir/stablehlo.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <span>

#include "base/error.h"

namespace mt::ir {
namespace {

std::string i64s(const std::vector<int64_t>& list) {
  return list.empty() ? "array<i64>" : fmt::format("array<i64: {}>", fmt::join(list, ", "));
}

// A float literal that parses back to the same value; MLIR wants a '.' and hex for inf and NaN.
std::string float_text(double value, DType dtype) {
  if (dtype == DType::kF32) value = static_cast<double>(static_cast<float>(value));
  if (dtype == DType::kBF16) value = BFloat16::from_float(static_cast<float>(value)).to_float();
  if (dtype == DType::kF16) value = Float16::from_float(static_cast<float>(value)).to_float();
  if (std::isfinite(value)) return fmt::format("{:.17e}", value);
  switch (dtype) {
    case DType::kF64: return fmt::format("0x{:016X}", std::bit_cast<uint64_t>(value));
    case DType::kF32:
      return fmt::format("0x{:08X}", std::bit_cast<uint32_t>(static_cast<float>(value)));
    case DType::kBF16:
      return fmt::format("0x{:04X}", BFloat16::from_float(static_cast<float>(value)).bits);
    default: return fmt::format("0x{:04X}", Float16::from_float(static_cast<float>(value)).bits);
  }
}

std::string splat_text(double value, DType dtype) {
  if (dtype == DType::kPred) return value != 0 ? "true" : "false";
  if (is_float(dtype)) return float_text(value, dtype);
  if (dtype == DType::kU64) return fmt::format("{}", static_cast<uint64_t>(value));
  return fmt::format("{}", static_cast<int64_t>(value));
}

// Nested lists: [[true, false], [false, false]].
std::string bool_text(std::span<const uint8_t> bytes, const Shape& shape, size_t axis,
                      size_t& next) {
  if (axis == shape.size()) return bytes[next++] != 0 ? "true" : "false";
  std::vector<std::string> parts;
  for (int64_t i = 0; i < shape[axis]; ++i)
    parts.push_back(bool_text(bytes, shape, axis + 1, next));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

std::string literal_text(const Tensor& tensor) {
  if (tensor.size() == 0) return "dense<>";
  if (tensor.dtype() == DType::kPred) {  // i1 has no hex form that all versions of MLIR agree on
    size_t next = 0;
    return fmt::format("dense<{}>", bool_text(tensor.data<uint8_t>(), tensor.shape(), 0, next));
  }
  std::string hex = "dense<\"0x";
  for (const std::byte b : tensor.bytes()) hex += fmt::format("{:02X}", static_cast<unsigned>(b));
  return hex + "\">";
}

// The start of a reduction: zero, or the lowest (highest) number of the dtype.
std::string identity_text(OpKind kind, DType dtype) {
  const bool lowest = kind == OpKind::kReduceMax;
  if (kind == OpKind::kReduceSum) return splat_text(0, dtype);
  if (is_float(dtype)) return float_text(lowest ? -INFINITY : INFINITY, dtype);
  const auto limits = [&]<typename T>(T) {
    return fmt::format("{}",
                       lowest ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max());
  };
  switch (dtype) {
    case DType::kS8: return limits(int8_t{});
    case DType::kU8: return limits(uint8_t{});
    case DType::kS32: return limits(int32_t{});
    case DType::kU32: return limits(uint32_t{});
    case DType::kS64: return limits(int64_t{});
    case DType::kU64: return limits(uint64_t{});
    default: return lowest ? "false" : "true";  // pred
  }
}

// Axes of size 1 are not in the printed mesh.
std::string axes_text(const sharding::Mesh& mesh, const std::vector<std::string>& axes) {
  std::vector<std::string> quoted;
  for (const std::string& axis : axes) {
    if (mesh.axis_size(axis) > 1) quoted.push_back(fmt::format("\"{}\"", axis));
  }
  return fmt::format("{{{}}}", fmt::join(quoted, ", "));
}

std::string sharding_text(const sharding::Mesh& mesh, const sharding::PartitionSpec& spec) {
  std::vector<std::string> dims;
  for (const auto& dim : spec.dims) {
    dims.push_back(axes_text(mesh, dim));
  }
  return fmt::format("<@mesh, [{}]>", fmt::join(dims, ", "));
}

// Groups of devices that differ only in their coordinates along `axes`.
std::vector<std::vector<int64_t>> device_groups(const sharding::Mesh& mesh,
                                                const std::vector<std::string>& axes) {
  std::map<int64_t, std::vector<int64_t>> groups;
  for (int64_t device = 0; device < mesh.device_count(); ++device) {
    int64_t rest = device, key = 0, place = 1;
    for (size_t i = mesh.axes.size(); i-- > 0;) {
      const auto& axis = mesh.axes[i];
      const bool grouped = std::find(axes.begin(), axes.end(), axis.name) != axes.end();
      if (!grouped) key += (rest % axis.size) * place;
      place *= axis.size;
      rest /= axis.size;
    }
    groups[key].push_back(device);
  }
  std::vector<std::vector<int64_t>> out;
  for (auto& [key, members] : groups) out.push_back(std::move(members));
  return out;
}

class Writer {
 public:
  explicit Writer(const ProgramSpec& spec) : spec_(spec) {}

  std::string module(const Graph& graph) {
    out_ = fmt::format(
        "module @{} attributes {{mhlo.num_partitions = {} : i32, "
        "mhlo.num_replicas = 1 : i32}} {{\n",
        spec_.name, spec_.mesh.device_count());
    if (spec_.mesh.device_count() > 1) {
      std::vector<std::string> axes;
      for (const auto& axis : spec_.mesh.axes) {
        if (axis.size > 1) axes.push_back(fmt::format("\"{}\"={}", axis.name, axis.size));
      }
      out_ += fmt::format("  sdy.mesh @mesh = <[{}]>\n", fmt::join(axes, ", "));
    }
    function(graph);
    out_ += "}\n";
    for (size_t i = 0; i < locations_.size(); ++i) {
      out_ += fmt::format("#loc{} = loc({})\n", i, locations_[i]);
    }
    return std::move(out_);
  }

 private:
  using Names = std::vector<std::string>;

  std::string fresh() { return fmt::format("%{}", next_++); }

  bool sharded() const { return spec_.mesh.device_count() > 1; }

  std::string argument_attributes(size_t i) const {
    std::vector<std::string> list;
    if (sharded() && i < spec_.arguments.size() && spec_.arguments[i]) {
      list.push_back("sdy.sharding = #sdy.sharding" +
                     sharding_text(spec_.mesh, *spec_.arguments[i]));
    }
    if (i < spec_.donated.size() && spec_.donated[i] >= 0) {
      list.push_back(fmt::format("tf.aliasing_output = {} : i32", spec_.donated[i]));
    }
    return list.empty() ? "" : fmt::format(" {{{}}}", fmt::join(list, ", "));
  }

  void function(const Graph& graph) {
    Names names(graph.value_count());
    std::vector<std::string> parameters, results;
    for (size_t i = 0; i < graph.parameters().size(); ++i) {
      const int32_t id = graph.parameters()[i];
      names[static_cast<size_t>(id)] = fmt::format("%arg{}", i);
      parameters.push_back(fmt::format("%arg{}: {}{}{}", i, mlir(graph.type_of(id)),
                                       argument_attributes(i), location(graph.definition(id))));
    }
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      std::string text = mlir(graph.outputs[i].type());
      if (sharded() && i < spec_.results.size() && spec_.results[i]) {
        text += fmt::format(" {{sdy.sharding = #sdy.sharding{}}}",
                            sharding_text(spec_.mesh, *spec_.results[i]));
      }
      results.push_back(std::move(text));
    }
    out_ += fmt::format("  func.func public @main({}) -> ({}) {{\n", fmt::join(parameters, ", "),
                        fmt::join(results, ", "));
    body(graph, names, 4, "func.return");
    out_ += "  }\n";
  }

  void body(const Graph& graph, Names& names, int indent, std::string_view terminator) {
    for (const Node& node : graph.nodes()) {
      if (node.kind != OpKind::kParameter) op(graph, node, names, indent);
    }
    std::vector<std::string> outputs, types;
    for (const Value& v : graph.outputs) {
      outputs.push_back(names[static_cast<size_t>(v.id)]);
      types.push_back(mlir(v.type()));
    }
    finish(terminator, outputs, types, indent);
  }

  void finish(std::string_view terminator, const std::vector<std::string>& outputs,
              const std::vector<std::string>& types, int indent) {
    line(indent, fmt::format("\"{}\"({}) : ({}) -> ()", terminator, fmt::join(outputs, ", "),
                             fmt::join(types, ", ")));
  }

  void line(int indent, const std::string& text) {
    out_.append(static_cast<size_t>(indent), ' ');
    out_ += text;
    out_ += '\n';
  }

  std::string location(const Node& node) {
    if (!spec_.locations) return "";
    std::string label = node.path;
    if (node.kind == OpKind::kParameter) {
      label = std::get<Label>(node.attributes).text;
    } else {
      label += fmt::format("{}{}", label.empty() ? "" : "/", name(node.kind));
    }
    if (label.empty()) return "";
    std::string text = fmt::format("\"{}\"", label);
    if (node.site.line > 0) {
      const std::string_view file = node.site.file;
      const size_t src = file.rfind("src/");
      text += fmt::format("(\"{}\":{}:1)", src == std::string_view::npos ? file : file.substr(src),
                          node.site.line);
    }
    const auto [it, inserted] = location_ids_.try_emplace(text, locations_.size());
    if (inserted) locations_.push_back(text);
    return fmt::format(" loc(#loc{})", it->second);
  }

  // "%5 = "op"(operands) {attributes} : (types) -> (types)"
  std::string simple(std::string_view dialect_op, const std::vector<std::string>& operands,
                     const std::vector<std::string>& operand_types,
                     const std::vector<std::string>& result_types, const std::string& attributes,
                     int indent, const std::string& regions = "", const std::string& loc = "") {
    const std::string result = fresh();
    const std::string left =
        result_types.size() == 1 ? result : fmt::format("{}:{}", result, result_types.size());
    line(indent, fmt::format("{} = \"{}\"({}){}{} : ({}) -> ({}){}", left, dialect_op,
                             fmt::join(operands, ", "), regions,
                             attributes.empty() ? "" : fmt::format(" {{{}}}", attributes),
                             fmt::join(operand_types, ", "), fmt::join(result_types, ", "), loc));
    return result;
  }

  void bind(const Node& node, Names& names, const std::string& result) {
    for (size_t i = 0; i < node.results.size(); ++i) {
      names[static_cast<size_t>(node.results[i])] =
          node.results.size() == 1 ? result : fmt::format("{}#{}", result, i);
    }
  }

  void op(const Graph& graph, const Node& node, Names& names, int indent) {
    switch (node.kind) {
      case OpKind::kScan: return scan_op(graph, node, names, indent);
      case OpKind::kWhile: return while_op(graph, node, names, indent);
      case OpKind::kManualComputation: return manual_op(graph, node, names, indent);
      case OpKind::kShardingConstraint: return constraint_op(graph, node, names, indent);
      case OpKind::kAllReduce:
        if (sharded()) break;
        names[static_cast<size_t>(node.results[0])] = names[static_cast<size_t>(node.operands[0])];
        return;
      default: break;
    }
    std::vector<std::string> operands, operand_types, result_types;
    for (const int32_t id : node.operands) {
      operands.push_back(names[static_cast<size_t>(id)]);
      operand_types.push_back(mlir(graph.type_of(id)));
    }
    for (const int32_t id : node.results) result_types.push_back(mlir(graph.type_of(id)));
    std::string regions;
    if (node.kind >= OpKind::kReduceSum && node.kind <= OpKind::kReduceMin) {
      const DType dtype = graph.type_of(node.results[0]).dtype;
      operands.push_back(reduction_identity(node.kind, dtype, indent));
      operand_types.push_back(mlir(Type{dtype, {}}));
      regions = reducer(
          kReducers[static_cast<size_t>(node.kind) - static_cast<size_t>(OpKind::kReduceSum)],
          dtype);
    } else if (node.kind == OpKind::kScatterAddRows || node.kind == OpKind::kAllReduce) {
      regions = reducer("add", graph.type_of(node.results[0]).dtype);
    }
    bind(node, names,
         simple(fmt::format("stablehlo.{}", printed_name(node.kind)), operands, operand_types,
                result_types, attributes(graph, node), indent, regions, location(node)));
  }

  static constexpr std::array<const char*, 3> kReducers{"add", "maximum", "minimum"};

  static std::string_view printed_name(OpKind kind) {
    switch (kind) {
      case OpKind::kTakeRows: return "gather";
      case OpKind::kScatterAddRows: return "scatter";
      case OpKind::kReduceSum:
      case OpKind::kReduceMax:
      case OpKind::kReduceMin: return "reduce";
      default: return name(kind);
    }
  }

  std::string reduction_identity(OpKind kind, DType dtype, int indent) {
    return simple(
        "stablehlo.constant", {}, {}, {mlir(Type{dtype, {}})},
        fmt::format("value = dense<{}> : {}", identity_text(kind, dtype), mlir(Type{dtype, {}})),
        indent);
  }

  std::string reducer(std::string_view op_name, DType dtype) {
    const std::string t = mlir(Type{dtype, {}});
    const std::string a = fresh(), b = fresh(), c = fresh();
    return fmt::format(
        " ({{ ^bb0({0}: {3}, {1}: {3}): {2} = \"stablehlo.{4}\"({0}, {1}) : ({3}, {3}) "
        "-> {3} \"stablehlo.return\"({2}) : ({3}) -> () }})",
        a, b, c, t, op_name);
  }

  std::string attributes(const Graph& graph, const Node& node) {
    const auto axes = [&] { return std::get<Axes>(node.attributes).axes; };
    switch (node.kind) {
      case OpKind::kConstant:
        return constant_value(graph.type_of(node.results[0]), node.attributes);
      case OpKind::kIota: return fmt::format("iota_dimension = {} : i64", axes()[0]);
      case OpKind::kBroadcast: return fmt::format("broadcast_dimensions = {}", i64s(axes()));
      case OpKind::kTranspose: return fmt::format("permutation = {}", i64s(axes()));
      case OpKind::kConcatenate: return fmt::format("dimension = {} : i64", axes()[0]);
      case OpKind::kDynamicSlice: return fmt::format("slice_sizes = {}", i64s(axes()));
      case OpKind::kReduceSum:
      case OpKind::kReduceMax:
      case OpKind::kReduceMin: return fmt::format("dimensions = {}", i64s(axes()));
      case OpKind::kCompare:
        return fmt::format("comparison_direction = #stablehlo<comparison_direction {}>",
                           describe(node.attributes));
      case OpKind::kSlice: {
        const auto& a = std::get<SliceDims>(node.attributes);
        return fmt::format("start_indices = {}, limit_indices = {}, strides = {}", i64s(a.start),
                           i64s(a.limit), i64s(a.stride));
      }
      case OpKind::kPad: {
        const auto& a = std::get<PadDims>(node.attributes);
        return fmt::format("edge_padding_low = {}, edge_padding_high = {}, interior_padding = {}",
                           i64s(a.low), i64s(a.high), i64s(a.interior));
      }
      case OpKind::kDotGeneral: return dot_attributes(std::get<DotDims>(node.attributes));
      case OpKind::kTakeRows: return gather_attributes(graph, node);
      case OpKind::kScatterAddRows: return scatter_attributes(graph, node);
      case OpKind::kCustomCall: return call_attributes(std::get<CustomCallInfo>(node.attributes));
      case OpKind::kAllReduce:
        return all_reduce_attributes(std::get<AllReduceInfo>(node.attributes));
      default: return "";
    }
  }

  static std::string constant_value(const Type& type, const Attributes& attributes) {
    if (const auto* splat = std::get_if<Splat>(&attributes)) {
      return fmt::format("value = dense<{}> : {}", splat_text(splat->value, type.dtype),
                         mlir(type));
    }
    const Tensor& tensor = std::get<Literal>(attributes).tensor;
    return fmt::format("value = {} : {}", literal_text(tensor), mlir(type));
  }

  static std::string dot_attributes(const DotDims& d) {
    const auto list = [](const std::vector<int64_t>& v) {
      return fmt::format("[{}]", fmt::join(v, ", "));
    };
    return fmt::format(
        "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = {}, "
        "rhs_batching_dimensions = {}, lhs_contracting_dimensions = {}, "
        "rhs_contracting_dimensions = {}>, precision_config = "
        "[#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]",
        list(d.lhs_batch), list(d.rhs_batch), list(d.lhs_contract), list(d.rhs_contract));
  }

  // Dimensions first..first+count-1.
  static std::string run(int64_t first, int64_t count) {
    std::vector<int64_t> dims;
    for (int64_t i = 0; i < count; ++i) dims.push_back(first + i);
    return fmt::format("[{}]", fmt::join(dims, ", "));
  }

  static std::string gather_attributes(const Graph& graph, const Node& node) {
    const Type& table = graph.type_of(node.operands[0]);
    const auto rank = static_cast<int64_t>(graph.type_of(node.operands[1]).shape.size());
    std::vector<int64_t> sizes = table.shape;
    sizes[0] = 1;
    return fmt::format(
        "dimension_numbers = #stablehlo.gather<offset_dims = {}, collapsed_slice_dims = [0], "
        "start_index_map = [0], index_vector_dim = {}>, indices_are_sorted = false, slice_sizes = "
        "{}",
        run(rank, static_cast<int64_t>(table.shape.size()) - 1), rank, i64s(sizes));
  }

  static std::string scatter_attributes(const Graph& graph, const Node& node) {
    const Type& table = graph.type_of(node.operands[0]);
    const auto rank = static_cast<int64_t>(graph.type_of(node.operands[1]).shape.size());
    return fmt::format(
        "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {}, "
        "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = {}>, "
        "indices_are_sorted = false, unique_indices = false",
        run(rank, static_cast<int64_t>(table.shape.size()) - 1), rank);
  }

  static std::string call_attributes(const CustomCallInfo& call) {
    std::vector<std::string> config;
    for (const auto& [key, value] : call.integers) {
      config.push_back(fmt::format("{} = {} : i64", key, value));
    }
    for (const auto& [key, value] : call.floats) {
      config.push_back(fmt::format("{} = {:.17e} : f64", key, value));
    }
    std::vector<std::string> aliases;
    for (const auto& [result, operand] : call.in_place) {
      aliases.push_back(fmt::format(
          "#stablehlo.output_operand_alias<output_tuple_indices = [{}], operand_index = {}, "
          "operand_tuple_indices = []>",
          result, operand));
    }
    return fmt::format(
        "call_target_name = \"{}\", api_version = 4 : i32, backend_config = {{{}}}, "
        "has_side_effect = {}{}",
        call.target, fmt::join(config, ", "), call.has_side_effect,
        aliases.empty() ? ""
                        : fmt::format(", output_operand_aliases = [{}]", fmt::join(aliases, ", ")));
  }

  std::string all_reduce_attributes(const AllReduceInfo& info) {
    const auto groups = device_groups(spec_.mesh, info.axes);
    std::vector<std::string> rows;
    for (const auto& group : groups) rows.push_back(fmt::format("[{}]", fmt::join(group, ", ")));
    return fmt::format(
        "replica_groups = dense<[{}]> : tensor<{}x{}xi64>, channel_handle = "
        "#stablehlo.channel_handle<handle = {}, type = 1>, use_global_device_ids",
        fmt::join(rows, ", "), groups.size(), groups[0].size(), ++channels_);
  }

  void constraint_op(const Graph& graph, const Node& node, Names& names, int indent) {
    const std::string& operand = names[static_cast<size_t>(node.operands[0])];
    if (!sharded()) {
      names[static_cast<size_t>(node.results[0])] = operand;
      return;
    }
    const std::string result = fresh();
    line(indent, fmt::format("{} = sdy.sharding_constraint {} {} : {}{}", result, operand,
                             sharding_text(spec_.mesh, std::get<Spec>(node.attributes).spec),
                             mlir(graph.type_of(node.results[0])), location(node)));
    names[static_cast<size_t>(node.results[0])] = result;
  }

  void manual_op(const Graph& graph, const Node& node, Names& names, int indent) {
    const auto& info = std::get<ManualInfo>(node.attributes);
    const Graph& region = *node.regions[0];
    if (!sharded()) return here(node, region, names, indent);
    std::vector<std::string> operands, in, out, types, results, parameters;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      operands.push_back(names[static_cast<size_t>(node.operands[i])]);
      types.push_back(mlir(graph.type_of(node.operands[i])));
      in.push_back(sharding_text(spec_.mesh, info.in[i]));
    }
    for (size_t i = 0; i < node.results.size(); ++i) {
      results.push_back(mlir(graph.type_of(node.results[i])));
      out.push_back(sharding_text(spec_.mesh, info.out[i]));
    }
    Names inner(region.value_count());
    for (const int32_t id : region.parameters()) {
      inner[static_cast<size_t>(id)] = fresh();
      parameters.push_back(
          fmt::format("{}: {}", inner[static_cast<size_t>(id)], mlir(region.type_of(id))));
    }
    const std::string result = fresh();
    line(indent, fmt::format("{}{} = sdy.manual_computation({}) in_shardings=[{}] "
                             "out_shardings=[{}] manual_axes={} ({}) {{",
                             result, results.size() == 1 ? "" : fmt::format(":{}", results.size()),
                             fmt::join(operands, ", "), fmt::join(in, ", "), fmt::join(out, ", "),
                             axes_text(spec_.mesh, info.manual_axes), fmt::join(parameters, ", ")));
    body(region, inner, indent + 2, "sdy.return");
    line(indent, fmt::format("}} : ({}) -> ({}){}", fmt::join(types, ", "),
                             fmt::join(results, ", "), location(node)));
    bind(node, names, result);
  }

  // One device: the region's ops without the region.
  void here(const Node& node, const Graph& region, Names& names, int indent) {
    Names inner(region.value_count());
    for (size_t i = 0; i < node.operands.size(); ++i) {
      inner[static_cast<size_t>(region.parameters()[i])] =
          names[static_cast<size_t>(node.operands[i])];
    }
    for (const Node& child : region.nodes()) {
      if (child.kind != OpKind::kParameter) op(region, child, inner, indent);
    }
    for (size_t i = 0; i < node.results.size(); ++i) {
      names[static_cast<size_t>(node.results[i])] =
          inner[static_cast<size_t>(region.outputs[i].id)];
    }
  }

  // Opens a block with one parameter a type; returns the parameters' names.
  Names block(const std::vector<std::string>& types, int indent) {
    Names names;
    std::vector<std::string> parameters;
    for (const std::string& type : types) {
      names.push_back(fresh());
      parameters.push_back(fmt::format("{}: {}", names.back(), type));
    }
    line(indent, fmt::format("^bb0({}):", fmt::join(parameters, ", ")));
    return names;
  }

  void while_op(const Graph& graph, const Node& node, Names& names, int indent) {
    std::vector<std::string> operands, types;
    for (const int32_t id : node.operands) {
      operands.push_back(names[static_cast<size_t>(id)]);
      types.push_back(mlir(graph.type_of(id)));
    }
    const std::string result = open_while(operands, types, indent);
    for (size_t r = 0; r < 2; ++r) {
      if (r == 1) line(indent, "}, {");
      const Graph& region = *node.regions[r];
      const Names parameters = block(types, indent + 2);
      Names inner(region.value_count());
      for (size_t i = 0; i < parameters.size(); ++i) {
        inner[static_cast<size_t>(region.parameters()[i])] = parameters[i];
      }
      body(region, inner, indent + 4, "stablehlo.return");
    }
    close_while(types, indent, location(node));
    bind(node, names, result);
  }

  std::string open_while(const std::vector<std::string>& operands,
                         const std::vector<std::string>& types, int indent) {
    const std::string result = fresh();
    line(indent, fmt::format("{}{} = \"stablehlo.while\"({}) ({{", result,
                             types.size() == 1 ? "" : fmt::format(":{}", types.size()),
                             fmt::join(operands, ", ")));
    return result;
  }

  void close_while(const std::vector<std::string>& types, int indent, const std::string& loc) {
    line(indent,
         fmt::format("}}) : ({}) -> ({}){}", fmt::join(types, ", "), fmt::join(types, ", "), loc));
  }

  std::string integer(int64_t value, int indent) {
    return simple("stablehlo.constant", {}, {}, {"tensor<i32>"},
                  fmt::format("value = dense<{}> : tensor<i32>", value), indent);
  }

  // A scan is a while over {index, carries, y buffers, xs, constants}.
  void scan_op(const Graph& graph, const Node& node, Names& names, int indent) {
    const auto& info = std::get<ScanInfo>(node.attributes);
    const Graph& region = *node.regions[0];
    const auto carries = static_cast<size_t>(info.carries), xs = info.x_axes.size();
    const size_t ys = node.results.size() - carries;
    std::vector<std::string> operands{integer(0, indent)}, types{"tensor<i32>"};
    const auto push = [&](const std::string& value, const Type& type) {
      operands.push_back(value);
      types.push_back(mlir(type));
    };
    const auto push_operand = [&](size_t i) {
      push(names[static_cast<size_t>(node.operands[i])], graph.type_of(node.operands[i]));
    };
    for (size_t i = 0; i < carries; ++i) push_operand(i);
    for (size_t i = 0; i < ys; ++i) {
      const Type& type = graph.type_of(node.results[carries + i]);
      push(simple("stablehlo.constant", {}, {}, {mlir(type)},
                  fmt::format("value = dense<{}> : {}", splat_text(0, type.dtype), mlir(type)),
                  indent),
           type);
    }
    for (size_t i = carries; i < node.operands.size(); ++i) push_operand(i);

    const std::string result = open_while(operands, types, indent);
    const Names tested = block(types, indent + 2);
    const std::string limit = integer(info.length, indent + 4);
    const std::string more = simple(
        "stablehlo.compare", {tested[0], limit}, {"tensor<i32>", "tensor<i32>"}, {"tensor<i1>"},
        "comparison_direction = #stablehlo<comparison_direction LT>", indent + 4);
    finish("stablehlo.return", {more}, {"tensor<i1>"}, indent + 4);
    line(indent, "}, {");
    scan_body(graph, node, region, info, types, carries, xs, ys, indent + 2);
    close_while(types, indent, location(node));
    for (size_t i = 0; i < node.results.size(); ++i) {
      names[static_cast<size_t>(node.results[i])] = fmt::format("{}#{}", result, i + 1);
    }
  }

  void scan_body(const Graph& graph, const Node& node, const Graph& region, const ScanInfo& info,
                 const std::vector<std::string>& types, size_t carries, size_t xs, size_t ys,
                 int indent) {
    const Names p = block(types, indent);
    const int in = indent + 2;
    std::string index = p[0];
    if (info.reverse) {
      index = simple("stablehlo.subtract", {integer(info.length - 1, in), p[0]},
                     {"tensor<i32>", "tensor<i32>"}, {"tensor<i32>"}, "", in);
    }
    const std::string zero = integer(0, in);
    Names inner(region.value_count());
    const auto set = [&](size_t parameter, const std::string& value) {
      inner[static_cast<size_t>(region.parameters()[parameter])] = value;
    };
    for (size_t i = 0; i < carries; ++i) set(i, p[1 + i]);
    for (size_t i = 0; i < xs; ++i) {
      set(carries + i, take_slice(graph.type_of(node.operands[carries + i]), info.x_axes[i],
                                  p[1 + carries + ys + i], index, zero, in));
    }
    for (size_t i = carries + xs; i < region.parameters().size(); ++i) set(i, p[1 + ys + i]);

    for (const Node& child : region.nodes()) {
      if (child.kind != OpKind::kParameter) op(region, child, inner, in);
    }
    std::vector<std::string> outputs{simple("stablehlo.add", {p[0], integer(1, in)},
                                            {"tensor<i32>", "tensor<i32>"}, {"tensor<i32>"}, "",
                                            in)};
    for (size_t i = 0; i < carries; ++i) {
      outputs.push_back(inner[static_cast<size_t>(region.outputs[i].id)]);
    }
    for (size_t i = 0; i < ys; ++i) {
      const Value y = region.outputs[carries + i];
      outputs.push_back(put_slice(graph.type_of(node.results[carries + i]), info.y_axes[i],
                                  p[1 + carries + i], inner[static_cast<size_t>(y.id)], y.type(),
                                  index, zero, in));
    }
    for (size_t i = 1 + carries + ys; i < p.size(); ++i) outputs.push_back(p[i]);
    finish("stablehlo.return", outputs, types, in);
  }

  static Type without_axis(const Type& type, int64_t axis) {
    Type out = type;
    out.shape.erase(out.shape.begin() + axis);
    return out;
  }

  std::string take_slice(const Type& type, int64_t axis, const std::string& from,
                         const std::string& index, const std::string& zero, int indent) {
    Type one = type;
    one.shape[static_cast<size_t>(axis)] = 1;
    std::vector<std::string> operands{from}, types{mlir(type)};
    for (int64_t i = 0; i < static_cast<int64_t>(type.shape.size()); ++i) {
      operands.push_back(i == axis ? index : zero);
      types.emplace_back("tensor<i32>");
    }
    const std::string cut = simple("stablehlo.dynamic_slice", operands, types, {mlir(one)},
                                   fmt::format("slice_sizes = {}", i64s(one.shape)), indent);
    return simple("stablehlo.reshape", {cut}, {mlir(one)}, {mlir(without_axis(type, axis))}, "",
                  indent);
  }

  std::string put_slice(const Type& type, int64_t axis, const std::string& into,
                        const std::string& value, const Type& value_type, const std::string& index,
                        const std::string& zero, int indent) {
    Type one = type;
    one.shape[static_cast<size_t>(axis)] = 1;
    const std::string shaped =
        simple("stablehlo.reshape", {value}, {mlir(value_type)}, {mlir(one)}, "", indent);
    std::vector<std::string> operands{into, shaped}, types{mlir(type), mlir(one)};
    for (int64_t i = 0; i < static_cast<int64_t>(type.shape.size()); ++i) {
      operands.push_back(i == axis ? index : zero);
      types.emplace_back("tensor<i32>");
    }
    return simple("stablehlo.dynamic_update_slice", operands, types, {mlir(type)}, "", indent);
  }

  const ProgramSpec& spec_;
  std::string out_;
  int64_t next_ = 0;
  int64_t channels_ = 0;
  std::vector<std::string> locations_;
  std::map<std::string, size_t> location_ids_;
};

}  // namespace

std::string to_stablehlo(const Graph& graph, const ProgramSpec& spec) {
  MT_CHECK(spec.arguments.empty() || spec.arguments.size() == graph.parameters().size());
  MT_CHECK(spec.results.empty() || spec.results.size() == graph.outputs.size());
  return Writer(spec).module(graph);
}

}  // namespace mt::ir
