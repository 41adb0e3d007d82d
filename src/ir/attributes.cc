#include "ir/attributes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/graph.h"

namespace mt::ir {
namespace {

std::string hash_bytes(std::span<const std::byte> bytes) {
  uint64_t h = 1469598103934665603ULL, g = 0x9e3779b97f4a7c15ULL;
  for (const std::byte b : bytes) {
    h = (h ^ static_cast<uint64_t>(b)) * 1099511628211ULL;
    g = (g + static_cast<uint64_t>(b)) * 0xbf58476d1ce4e5b9ULL ^ (g >> 29);
  }
  return fmt::format("{:016x}{:016x}", h, g);
}

std::string specs(const std::vector<sharding::PartitionSpec>& list) {
  std::string out;
  for (const auto& spec : list) out += to_string(spec) + " ";
  return out;
}

struct Describer {
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(const Literal& a) const {
    return fmt::format("bytes={}", hash_bytes(a.tensor.bytes()));
  }
  std::string operator()(const Splat& a) const { return fmt::format("{:.17g}", a.value); }
  std::string operator()(const Axes& a) const { return fmt::format("axes={}", a.axes); }
  std::string operator()(Direction a) const {
    constexpr std::array<const char*, 6> kNames{"EQ", "NE", "LT", "LE", "GT", "GE"};
    return kNames[static_cast<size_t>(a)];
  }
  std::string operator()(const SliceDims& a) const {
    return fmt::format("start={} limit={} stride={}", a.start, a.limit, a.stride);
  }
  std::string operator()(const PadDims& a) const {
    return fmt::format("low={} high={} interior={}", a.low, a.high, a.interior);
  }
  std::string operator()(const DotDims& a) const {
    return fmt::format("batch={}x{} contract={}x{}", a.lhs_batch, a.rhs_batch, a.lhs_contract,
                       a.rhs_contract);
  }
  std::string operator()(const Label& a) const { return a.text; }
  std::string operator()(const Spec& a) const { return to_string(a.spec); }
  std::string operator()(const CustomCallInfo& a) const {
    return fmt::format("@{} {} {}{}", a.target, a.integers, a.floats,
                       a.in_place.empty() ? "" : fmt::format(" in place {}", a.in_place));
  }
  std::string operator()(const ScanInfo& a) const {
    return fmt::format("length={} carries={} x_axes={} y_axes={}{}", a.length, a.carries, a.x_axes,
                       a.y_axes, a.reverse ? " reverse" : "");
  }
  std::string operator()(const RematInfo& a) const { return fmt::format("saved={}", a.saved); }
  std::string operator()(const CustomVjpInfo& a) const { return a.label; }
  std::string operator()(const ManualInfo& a) const {
    return fmt::format("in={} out={} axes={}", specs(a.in), specs(a.out), a.manual_axes);
  }
  std::string operator()(const AllReduceInfo& a) const { return fmt::format("{}", a.axes); }
};

}  // namespace

std::string describe(const Attributes& attributes) { return std::visit(Describer{}, attributes); }

}  // namespace mt::ir
