// An array laid out over a mesh: device k of the mesh holds one buffer with its shard.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/tensor.h"
#include "pjrt/buffer.h"
#include "pjrt/client.h"
#include "sharding/mesh.h"

namespace mt::pjrt {

struct ArrayType {
  DType dtype = DType::kF32;
  Shape shape;  // of the whole array
  sharding::Mesh mesh;
  sharding::PartitionSpec spec;

  Shape shard_shape() const { return sharding::shard_shape(mesh, spec, shape); }
};
// Shared, so that a run doesn't copy a mesh per result.
using ArrayTypeRef = std::shared_ptr<const ArrayType>;
ArrayTypeRef array_type(DType dtype, Shape shape, sharding::Mesh mesh = {},
                        sharding::PartitionSpec spec = {});

// Move-only. After being donated to a run it is consumed: every use but destruction, assignment and
// the const getters of its type throws kDevice.
class Array {
 public:
  Array();  // consumed from the start
  // Shards that are whole or a run of leading rows are sent from the tensor's own bytes; others
  // are copied out one at a time. Transfers may still be under way on return.
  // Throws kShape if dtype or shape differ from the type's, kConfig if the mesh has more devices
  // than the client or a size doesn't divide.
  static Array from_host(std::shared_ptr<const Client> client, const Tensor& tensor,
                         ArrayTypeRef type, HostMemory memory = HostMemory::kCopy);
  static Array from_host(std::shared_ptr<const Client> client, const Tensor& tensor,
                         sharding::Mesh mesh = {}, sharding::PartitionSpec spec = {});
  // Calls `shard(device)` for device 0, 1, ... and sends each result before asking for the next.
  static Array from_shards(std::shared_ptr<const Client> client, ArrayTypeRef type,
                           const std::function<Tensor(int64_t device)>& shard,
                           HostMemory memory = HostMemory::kCopy);
  // Takes one buffer per device of the mesh, as a run returns them.
  Array(std::shared_ptr<const Client> client, ArrayTypeRef type, std::vector<Buffer> buffers);

  const ArrayType& type() const { return *type_; }
  const ArrayTypeRef& type_ref() const { return type_; }
  DType dtype() const { return type_->dtype; }
  const Shape& shape() const { return type_->shape; }
  int64_t device_count() const { return type_->mesh.device_count(); }
  bool is_consumed() const { return buffers_.empty(); }

  bool is_ready() const;
  void await() const;      // until every shard is there; throws the error of the run that made it
  Tensor to_host() const;  // waits; a shard that several devices hold is read once
  Tensor shard_to_host(int64_t device) const;
  int64_t bytes_on_device(int64_t device) const;

  // For this room.
  const std::vector<Buffer>& buffers() const;  // throws if consumed
  std::vector<Buffer> consume();

 private:
  std::shared_ptr<const Client> client_;
  ArrayTypeRef type_;
  std::vector<Buffer> buffers_;
};

}  // namespace mt::pjrt
