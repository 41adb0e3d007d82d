// What this room's tests share: a client on the real CPU plugin, and small programs.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "pjrt/client.h"
#include "sharding/mesh.h"

namespace mt::pjrt {

inline std::shared_ptr<Client> test_client(int64_t devices) {
  ::setenv("MAXTEXT_DEPS", MT_DEPS, 1);
  return Client::create({.platform = "cpu", .device_count = devices});
}

inline sharding::Mesh fsdp(int64_t n) { return {{{"fsdp", n}}}; }

// tanh(a b) over fsdp=4, the first argument's memory reused.
inline constexpr const char* kShardedProgram = R"(
module @m attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["fsdp"=4]>
  func.func public @main(
      %a: tensor<64x128xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {}]>, tf.aliasing_output = 0 : i32},
      %b: tensor<128x128xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {}]>})
      -> (tensor<64x128xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {}]>}) {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<64x128xf32>, tensor<128x128xf32>) -> tensor<64x128xf32>
    %1 = stablehlo.tanh %0 : tensor<64x128xf32>
    return %1 : tensor<64x128xf32>
  }
})";

}  // namespace mt::pjrt
