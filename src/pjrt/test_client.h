// What this room's tests share: a client on the real CPU plugin, and small programs.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "pjrt/client.h"
#include "pjrt/executable.h"
#include "sharding/mesh.h"

namespace mt::pjrt {

inline std::shared_ptr<Client> test_client(int64_t devices) {
  ::setenv("MAXTEXT_DEPS", MT_DEPS, 1);
  return Client::create({.platform = "cpu", .device_count = devices});
}

inline sharding::Mesh fsdp(int64_t n) { return {{{"fsdp", n}}}; }

// An empty folder that goes with the object.
class TestFolder {
 public:
  TestFolder() {
    char name[] = "/tmp/mt_pjrt_XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~TestFolder() { [[maybe_unused]] const int rc = std::system(("rm -rf " + path_).c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The error that `body` throws, as "<kind>: <text>"; empty if it throws none.
inline std::string error_of(const std::function<void()>& body) {
  constexpr const char* kKinds[] = {"shape", "config", "io", "device", "limit", "cancelled"};
  try {
    body();
  } catch (const Error& error) {
    return std::string(kKinds[static_cast<int>(error.kind())]) + ": " + error.what();
  }
  return "";
}

// One argument or more, one result, nothing donated.
inline Array run_one(const Executable& program, std::vector<Array*> arguments, ArrayTypeRef type) {
  const ArrayTypeRef types[] = {std::move(type)};
  std::vector<Array> out = program.execute(arguments, types);
  return std::move(out[0]);
}

inline constexpr const char* kAddOne = R"(
module @add_one { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %one = stablehlo.constant dense<1.0> : tensor<4xf32>
  %0 = stablehlo.add %a, %one : tensor<4xf32>
  return %0 : tensor<4xf32> } })";

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
