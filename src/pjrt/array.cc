#include "pjrt/array.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"

namespace mt::pjrt {
namespace {

using sharding::shard_start;

void check_mesh(const Client& client, const ArrayType& type) {
  const int64_t wanted = type.mesh.device_count();
  const auto have = static_cast<int64_t>(client.devices().size());
  if (wanted > have) {
    throw fail(ErrorKind::kConfig, "a mesh of {} devices on a client with {}", wanted, have);
  }
}

void check_tensor(const Tensor& tensor, DType dtype, const Shape& shape) {
  if (tensor.dtype() == dtype && tensor.shape() == shape) return;
  throw fail(ErrorKind::kShape, "expected {}{} for the device, got {}{}", name(dtype),
             to_string(shape), name(tensor.dtype()), to_string(tensor.shape()));
}

// A shard is one run of bytes of the whole if all its dimensions after the first that is cut, or
// before it larger than one, are whole.
bool is_contiguous(const Shape& shard, const Shape& whole) {
  size_t i = 0;
  while (i < shard.size() && shard[i] == 1) ++i;
  for (++i; i < shard.size(); ++i) {
    if (shard[i] != whole[i]) return false;
  }
  return true;
}

size_t byte_offset(const std::vector<int64_t>& start, const Shape& whole, DType dtype) {
  int64_t offset = 0;
  for (size_t i = 0; i < whole.size(); ++i) offset = offset * whole[i] + start[i];
  return static_cast<size_t>(offset * byte_size(dtype));
}

// The shard's contents: a view of the tensor where they are one run, else a copy.
Tensor shard_of(const Tensor& tensor, const ArrayType& type, const Shape& shard, int64_t device) {
  if (shard == type.shape) return tensor;
  const auto start = shard_start(type.mesh, type.spec, type.shape, device);
  if (!is_contiguous(shard, type.shape)) return tensor.slice(start, shard);
  const auto size = static_cast<size_t>(element_count(shard) * byte_size(type.dtype));
  const auto bytes = tensor.bytes().subspan(byte_offset(start, type.shape, type.dtype), size);
  return Tensor(type.dtype, shard, bytes, std::make_shared<Tensor>(tensor));
}

// Copies a shard into its place in the whole, one innermost row at a time.
void put_shard(const Tensor& shard, const std::vector<int64_t>& start, Tensor& whole) {
  const Shape& sizes = shard.shape();
  const auto row = static_cast<size_t>(sizes.back() * byte_size(shard.dtype()));
  const std::byte* from = shard.bytes().data();
  std::byte* to = whole.mutable_bytes().data();
  std::vector<int64_t> at = start;
  for (size_t done = 0; done < shard.bytes().size(); done += row) {
    std::memcpy(to + byte_offset(at, whole.shape(), whole.dtype()), from + done, row);
    for (size_t i = sizes.size() - 1; i-- > 0;) {
      if (++at[i] < start[i] + sizes[i]) break;
      at[i] = start[i];
    }
  }
}

ArrayTypeRef no_type() {
  static const ArrayTypeRef type = std::make_shared<ArrayType>();
  return type;
}

}  // namespace

ArrayTypeRef array_type(DType dtype, Shape shape, sharding::Mesh mesh,
                        sharding::PartitionSpec spec) {
  return std::make_shared<ArrayType>(
      ArrayType{dtype, std::move(shape), std::move(mesh), std::move(spec)});
}

Array::Array() : type_(no_type()) {}

Array::Array(std::shared_ptr<const Client> client, ArrayTypeRef type, std::vector<Buffer> buffers)
    : client_(std::move(client)), type_(std::move(type)), buffers_(std::move(buffers)) {
  MT_CHECK(static_cast<int64_t>(buffers_.size()) == device_count());
}

Array Array::from_host(std::shared_ptr<const Client> client, const Tensor& tensor,
                       ArrayTypeRef type, HostMemory memory) {
  check_tensor(tensor, type->dtype, type->shape);
  const ArrayType& t = *type;
  const Shape shard = t.shard_shape();
  return from_shards(
      std::move(client), type, [&](int64_t device) { return shard_of(tensor, t, shard, device); },
      memory);
}

Array Array::from_host(std::shared_ptr<const Client> client, const Tensor& tensor,
                       sharding::Mesh mesh, sharding::PartitionSpec spec) {
  return from_host(std::move(client), tensor,
                   array_type(tensor.dtype(), tensor.shape(), std::move(mesh), std::move(spec)));
}

Array Array::from_shards(std::shared_ptr<const Client> client, ArrayTypeRef type,
                         const std::function<Tensor(int64_t device)>& shard, HostMemory memory) {
  check_mesh(*client, *type);
  const Shape shape = type->shard_shape();
  std::vector<Buffer> buffers;
  for (int64_t device = 0; device < type->mesh.device_count(); ++device) {
    const Tensor contents = shard(device);
    check_tensor(contents, type->dtype, shape);
    buffers.push_back(Buffer::from_host(client, contents, static_cast<size_t>(device), memory));
  }
  return Array(std::move(client), std::move(type), std::move(buffers));
}

const std::vector<Buffer>& Array::buffers() const {
  if (buffers_.empty()) {
    throw fail(ErrorKind::kDevice, "an array {}{} was used after it had been donated to a run",
               name(dtype()), to_string(shape()));
  }
  return buffers_;
}

std::vector<Buffer> Array::consume() {
  buffers();
  std::vector<Buffer> out = std::move(buffers_);
  buffers_.clear();
  return out;
}

bool Array::is_ready() const {
  return std::all_of(buffers().begin(), buffers().end(),
                     [](const Buffer& b) { return b.ready().is_ready(); });
}

void Array::await() const {
  for (const Buffer& buffer : buffers()) buffer.ready().await();
}

Tensor Array::shard_to_host(int64_t device) const {
  if (device < 0 || device >= static_cast<int64_t>(buffers().size())) {
    throw fail(ErrorKind::kDevice, "shard {} of {} asked for", device, buffers().size());
  }
  Tensor out(dtype(), type_->shard_shape());
  buffers()[static_cast<size_t>(device)].to_host(out.mutable_bytes());
  return out;
}

Tensor Array::to_host() const {
  const Shape shard = type_->shard_shape();
  if (shard == shape()) {
    await();
    return shard_to_host(0);
  }
  Tensor out(dtype(), shape());
  const bool in_place = is_contiguous(shard, shape());
  const auto size = static_cast<size_t>(element_count(shard) * byte_size(dtype()));
  std::set<std::vector<int64_t>> seen;
  for (int64_t device = 0; device < device_count(); ++device) {
    const auto start = shard_start(type_->mesh, type_->spec, shape(), device);
    if (!seen.insert(start).second) continue;
    if (in_place) {
      const auto to = out.mutable_bytes().subspan(byte_offset(start, shape(), dtype()), size);
      buffers()[static_cast<size_t>(device)].to_host(to);
    } else {
      put_shard(shard_to_host(device), start, out);
    }
  }
  return out;
}

int64_t Array::bytes_on_device(int64_t device) const {
  MT_CHECK(device >= 0 && device < device_count());
  return buffers()[static_cast<size_t>(device)].bytes();
}

}  // namespace mt::pjrt
