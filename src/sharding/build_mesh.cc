#include "sharding/build_mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace mt::sharding {
namespace {

constexpr int64_t kMaxDevices = int64_t{1} << 24;  // far above any pod; keeps products in range

std::string key_of(const AxisParallelism& axis, bool ici) {
  return fmt::format("{}_{}_parallelism", ici ? "ici" : "dcn",
                     axis.key.empty() ? axis.name : axis.key);
}

int64_t size_of(const AxisParallelism& axis, bool ici) { return ici ? axis.ici : axis.dcn; }

struct Group {
  int64_t fixed = 1;  // product of the given sizes
  std::string open;   // the key that is -1, or ""
  std::string given;  // "ici_fsdp_parallelism=2 * ici_tensor_parallelism=2", sizes > 1
};

Group read_group(const Parallelism& parallelism, bool ici) {
  Group group;
  std::vector<std::string> given;
  for (const AxisParallelism& axis : parallelism.axes) {
    const int64_t size = size_of(axis, ici);
    const std::string key = key_of(axis, ici);
    if (size == -1) {
      if (!group.open.empty()) {
        throw fail(ErrorKind::kConfig,
                   "{} and {} are both -1: only one of them can take what is left", group.open,
                   key);
      }
      group.open = key;
      continue;
    }
    if (size < 1) throw fail(ErrorKind::kConfig, "{}={}: must be -1 or at least 1", key, size);
    if (size > kMaxDevices / group.fixed) {
      throw fail(ErrorKind::kConfig, "{}={}: more than {} devices in all", key, size, kMaxDevices);
    }
    group.fixed *= size;
    if (size > 1) given.push_back(fmt::format("{}={}", key, size));
  }
  group.given =
      given.empty() ? "all sizes given are 1" : fmt::format("{}", fmt::join(given, " * "));
  return group;
}

// The size of the group's open axis (1 if it has none), so that the product is `count`.
int64_t open_size(const Group& group, int64_t count, const char* what) {
  if (group.open.empty()) {
    if (group.fixed == count) return 1;
    throw fail(ErrorKind::kConfig, "{} make {} {} but there are {}", group.given, group.fixed, what,
               count);
  }
  if (count % group.fixed != 0) {
    throw fail(ErrorKind::kConfig, "{}=-1: the {} {} can't be divided by {} ({})", group.open,
               count, what, group.fixed, group.given);
  }
  return count / group.fixed;
}

}  // namespace

int64_t slice_count(const Parallelism& parallelism) {
  if (parallelism.num_slices == -1) return read_group(parallelism, false).fixed;
  if (parallelism.num_slices < 1) {
    throw fail(ErrorKind::kConfig, "num_slices={}: must be -1 or at least 1",
               parallelism.num_slices);
  }
  return parallelism.num_slices;
}

int64_t required_devices(const Parallelism& parallelism) {
  const int64_t per_slice = read_group(parallelism, true).fixed;
  const int64_t slices = slice_count(parallelism);
  if (slices > kMaxDevices / per_slice) {
    throw fail(ErrorKind::kConfig, "{} slices of {} devices: more than {} in all", slices,
               per_slice, kMaxDevices);
  }
  return per_slice * slices;
}

Mesh build_mesh(const Parallelism& parallelism, int64_t devices) {
  const int64_t slices = slice_count(parallelism);
  if (devices < 1 || devices % slices != 0) {
    throw fail(ErrorKind::kConfig, "{} devices can't be divided into {} slices", devices, slices);
  }
  const int64_t open_ici = open_size(read_group(parallelism, true), devices / slices,
                                     slices == 1 ? "devices" : "devices a slice");
  const int64_t open_dcn = open_size(read_group(parallelism, false), slices, "slices");
  Mesh mesh;
  for (const AxisParallelism& axis : parallelism.axes) {
    const int64_t ici = axis.ici == -1 ? open_ici : axis.ici;
    const int64_t dcn = axis.dcn == -1 ? open_dcn : axis.dcn;
    mesh.axes.push_back({axis.name, ici * dcn});
  }
  return mesh;
}

}  // namespace mt::sharding
