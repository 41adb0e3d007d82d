#include "pjrt/executable.h"

#include <gtest/gtest.h>

#include <cmath>

#include "pjrt/api.h"
#include "pjrt/test_client.h"

// AddressSanitizer would otherwise end the program where malloc says no (OutOfMemoryIsALimitError).
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace mt::pjrt {
namespace {

Tensor floats(Shape shape, float value) {
  Tensor t(DType::kF32, std::move(shape));
  for (float& x : t.mutable_data<float>()) x = value;
  return t;
}

const auto kRows = array_type(DType::kF32, {64, 128}, fsdp(4), {{{"fsdp"}, {}}});
const auto kWeights = array_type(DType::kF32, {128, 128}, fsdp(4), {{{"fsdp"}, {}}});

Tensor twice_identity() {
  Tensor w(DType::kF32, {128, 128});
  for (size_t i = 0; i < 128; ++i) w.mutable_data<float>()[i * 129] = 2.0F;
  return w;
}

TEST(Executable, RunsAProgram) {
  auto client = test_client(1);
  const Executable program = Executable::compile(client, kAddOne, {});
  EXPECT_EQ(program.num_partitions(), 1);
  EXPECT_EQ(program.num_outputs(), 1);
  EXPECT_FALSE(program.from_cache());
  Array a = Array::from_host(client, Tensor::of<float>(DType::kF32, {4}, {1, 2, 3, 4}));
  const Tensor y = run_one(program, {&a}, a.type_ref()).to_host();
  EXPECT_EQ(std::vector<float>(y.data<float>().begin(), y.data<float>().end()),
            (std::vector<float>{2, 3, 4, 5}));
}

TEST(Executable, RunsOnFourDevicesWithDonation) {
  auto client = test_client(4);
  const int64_t before = live_buffers();
  {
    const Executable program = Executable::compile(client, kShardedProgram, {.num_partitions = 4});
    Tensor x(DType::kF32, {64, 128});
    for (size_t i = 0; i < 64 * 128; ++i) {
      x.mutable_data<float>()[i] = 0.001F * static_cast<float>(i / 128);
    }
    Array b = Array::from_host(client, twice_identity(), kWeights);
    for (int i = 0; i < 100; ++i) {
      Array a = Array::from_host(client, x, kRows);
      Array* arguments[] = {&a, &b};
      const ArrayTypeRef results[] = {kRows};
      const int64_t donated[] = {0};
      std::vector<Array> out = program.execute(arguments, results, donated);
      EXPECT_TRUE(a.is_consumed());
      EXPECT_FALSE(b.is_consumed());
      EXPECT_EQ(live_buffers(), before + 8);
      const Tensor y = out[0].to_host();
      ASSERT_EQ(y.shape(), (Shape{64, 128}));
      for (size_t k = 0; k < 64; ++k) {
        ASSERT_NEAR(y.data<float>()[k * 128 + 5], std::tanh(0.002F * static_cast<float>(k)), 1e-6);
      }
    }
  }
  EXPECT_EQ(live_buffers(), before);
}

TEST(Executable, ManyRunsMayBeUnderWayAtOnce) {
  auto client = test_client(4);
  const Executable program = Executable::compile(client, kShardedProgram, {.num_partitions = 4});
  Array b = Array::from_host(client, twice_identity(), kWeights);
  Array a = Array::from_host(client, floats({64, 128}, 0.001F), kRows);
  float expected = 0.001F;
  for (int i = 0; i < 1000; ++i) {  // each run takes the one before's result, nobody waits
    Array* arguments[] = {&a, &b};
    const ArrayTypeRef results[] = {kRows};
    const int64_t donated[] = {0};
    std::vector<Array> out = program.execute(arguments, results, donated);
    a = std::move(out[0]);
    expected = std::tanh(2 * expected);
  }
  EXPECT_NEAR(a.to_host().data<float>()[77], expected, 1e-3);
}

TEST(Executable, AnArgumentNotDonatedStaysValid) {
  auto client = test_client(4);
  const Executable program = Executable::compile(client, kShardedProgram, {.num_partitions = 4});
  Array a = Array::from_host(client, floats({64, 128}, 0.25F), kRows);
  Array b = Array::from_host(client, twice_identity(), kWeights);
  const Array out = run_one(program, {&a, &b}, kRows);  // the program would alias a
  EXPECT_NEAR(out.to_host().data<float>()[0], std::tanh(0.5F), 1e-6);
  EXPECT_EQ(a.to_host().data<float>()[0], 0.25F);
}

TEST(Executable, UseAfterDonationIsAnError) {
  auto client = test_client(4);
  const Executable program = Executable::compile(client, kShardedProgram, {.num_partitions = 4});
  Array a = Array::from_host(client, floats({64, 128}, 0.25F), kRows);
  Array b = Array::from_host(client, twice_identity(), kWeights);
  Array* arguments[] = {&a, &b};
  const ArrayTypeRef results[] = {kRows};
  const int64_t donated[] = {0};
  program.execute(arguments, results, donated);
  const std::string text =
      "device: an array float32[64, 128] was used after it had been donated to a run";
  EXPECT_EQ(error_of([&] { a.to_host(); }), text);
  EXPECT_EQ(error_of([&] { a.await(); }), text);
  EXPECT_EQ(error_of([&] { program.execute(arguments, results); }), text);
}

TEST(Executable, RefusesADonatedArgumentPassedTwice) {
  auto client = test_client(4);
  const Executable program = Executable::compile(client, kShardedProgram, {.num_partitions = 4});
  Array a = Array::from_host(client, floats({64, 128}, 0.25F), kRows);
  Array* arguments[] = {&a, &a};
  const ArrayTypeRef results[] = {kRows};
  const int64_t donated[] = {0};
  EXPECT_EQ(error_of([&] { program.execute(arguments, results, donated); }),
            "device: argument 0 is donated and passed more than once");
  EXPECT_FALSE(a.is_consumed());
}

TEST(Executable, RefusesWrongArgumentsAndResults) {
  auto client = test_client(4);
  const int64_t before = live_buffers();
  const Executable program = Executable::compile(client, kAddOne, {});
  Array good = Array::from_host(client, floats({4}, 1));
  Array spread = Array::from_host(client, floats({4}, 1), fsdp(4));
  Array big = Array::from_host(client, floats({40}, 1));
  const auto run = [&](std::vector<Array*> in, std::vector<ArrayTypeRef> out) {
    return error_of([&] { program.execute(in, out); });
  };
  const auto type = good.type_ref();
  EXPECT_EQ(run({&spread}, {type}), "device: argument 0 lies on 4 devices, the program runs on 1");
  EXPECT_EQ(run({&good}, {}), "device: 0 result types given, the program has 1 results");
  EXPECT_EQ(run({&good}, {spread.type_ref()}),
            "device: result 0 was to lie on 4 devices, the program runs on 1");
  EXPECT_EQ(run({&good}, {array_type(DType::kBF16, {4})}),
            "device: result 0 is float32[4] on a device, expected bfloat16[4]");
  EXPECT_EQ(run({&good}, {array_type(DType::kF32, {2, 2})}),
            "device: result 0 is float32[4] on a device, expected float32[2, 2]");
  const auto plugin_says = [&](const std::string& text) {
    return text.starts_with("device: running a program: ");
  };
  EXPECT_TRUE(plugin_says(run({&good, &good}, {type}))) << run({&good, &good}, {type});
  EXPECT_TRUE(plugin_says(run({}, {type}))) << run({}, {type});
  EXPECT_NE(run({&big}, {type}), "");
  EXPECT_EQ(run_one(program, {&good}, type).to_host().data<float>()[3], 2.0F);
  for (Array* array : {&good, &spread, &big}) *array = Array();
  EXPECT_EQ(live_buffers(), before);
}

TEST(Executable, GivesTheCompilersText) {
  auto client = test_client(1);
  const auto compile = [&](const char* text) {
    return error_of([&] { Executable::compile(client, text, {}); });
  };
  const std::string unknown_name = compile(
      "module { func.func public @main() -> tensor<f32> { return %nothing : tensor<f32> } }");
  EXPECT_NE(unknown_name.find("1:59: error: use of undeclared SSA value name"), std::string::npos)
      << unknown_name;
  const std::string types =
      compile(R"(module { func.func public @main(%a: tensor<4xf32>) -> tensor<5xf32> {
      %0 = stablehlo.add %a, %a : tensor<5xf32>
      return %0 : tensor<5xf32> } })");
  EXPECT_NE(types.find("device: PJRT_Client_Compile: "), std::string::npos) << types;
  EXPECT_NE(compile(""), "");
  EXPECT_NE(compile("module {"), "");
}

TEST(Executable, CompilesWithXlaOptions) {
  auto client = test_client(1);
  const TestFolder folder;
  CompileOptions options;
  options.xla = {{"xla_dump_to", folder.path()}, {"xla_dump_hlo_as_text", true}};
  Executable::compile(client, kAddOne, options);
  const std::string command = "ls " + folder.path() + "/*add_one*.txt >/dev/null 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
  options.xla = {{"xla_no_such_option", int64_t{1}}};
  const std::string text = error_of([&] { Executable::compile(client, kAddOne, options); });
  EXPECT_NE(text.find("xla_no_such_option"), std::string::npos) << text;
}

TEST(Executable, SaysWhatItNeeds) {
  auto client = test_client(4);
  const Executable program = Executable::compile(client, kShardedProgram, {.num_partitions = 4});
  const ProgramMemory memory = program.memory_stats();
  EXPECT_EQ(memory.arguments, 16 * 128 * 4 + 32 * 128 * 4);  // per device
  EXPECT_EQ(memory.aliased, 16 * 128 * 4);
  EXPECT_GE(memory.outputs, 16 * 128 * 4);
  EXPECT_GT(memory.temporaries, 128 * 128 * 4 - 1);  // the gathered weights
  EXPECT_TRUE(program.cost_analysis().empty());      // XLA's CPU programs have none
  const OptimizedProgram optimized = program.optimized_program();
  EXPECT_EQ(optimized.format.substr(0, 3), "hlo");
  EXPECT_NE(optimized.bytes.find("all-gather"), std::string::npos);
}

TEST(Executable, SerialisesAndLoads) {
  auto client = test_client(1);
  const std::string bytes = Executable::compile(client, kAddOne, {}).serialize();
  const Executable loaded = Executable::deserialize(client, bytes);
  Array a = Array::from_host(client, floats({4}, 1));
  EXPECT_EQ(run_one(loaded, {&a}, a.type_ref()).to_host().data<float>()[2], 2.0F);
  EXPECT_NE(error_of([&] { Executable::deserialize(client, "not an executable"); }), "");
}

// 4 PiB can't be allocated anywhere: the error must come, with its text, by the time of to_host.
TEST(Executable, OutOfMemoryIsALimitError) {
  auto client = test_client(1);
  const int64_t before = live_buffers();
  {
    const Executable program = Executable::compile(client, R"(
      module { func.func public @main(%a: tensor<f32>) -> tensor<33554432x33554432xf32> {
        %0 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<33554432x33554432xf32>
        return %0 : tensor<33554432x33554432xf32> } })",
                                                   {});
    Array a = Array::from_host(client, floats({}, 1));
    const auto type = array_type(DType::kF32, {33554432, 33554432});
    EXPECT_EQ(error_of([&] { run_one(program, {&a}, type).await(); }),
              "limit: running a program: Out of memory allocating 4503599627370496 bytes.");
    EXPECT_EQ(a.to_host().data<float>()[0], 1.0F);
  }
  EXPECT_EQ(live_buffers(), before);
}

// A buffer whose contents never arrive: what a failed transfer or an earlier failed run leaves.
Buffer failing_buffer(const std::shared_ptr<Client>& client, const std::string& message) {
  const PJRT_Api& api = client->api();
  const int64_t dims[] = {4};
  PJRT_ShapeSpec spec{};
  spec.struct_size = PJRT_ShapeSpec_STRUCT_SIZE;
  spec.dims = dims;
  spec.num_dims = 1;
  spec.element_type = PJRT_Buffer_Type_F32;
  PJRT_Device_DefaultMemory_Args memory{};
  memory.struct_size = PJRT_Device_DefaultMemory_Args_STRUCT_SIZE;
  memory.device = client->raw_device(0);
  MT_CHECK(api.PJRT_Device_DefaultMemory(&memory) == nullptr);
  PJRT_Client_CreateBuffersForAsyncHostToDevice_Args create{};
  create.struct_size = PJRT_Client_CreateBuffersForAsyncHostToDevice_Args_STRUCT_SIZE;
  create.client = client->raw();
  create.shape_specs = &spec;
  create.num_shape_specs = 1;
  create.memory = memory.memory;
  MT_CHECK(api.PJRT_Client_CreateBuffersForAsyncHostToDevice(&create) == nullptr);
  PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args retrieve{};
  retrieve.struct_size = PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args_STRUCT_SIZE;
  retrieve.transfer_manager = create.transfer_manager;
  MT_CHECK(api.PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer(&retrieve) == nullptr);
  PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args set{};
  set.struct_size = PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args_STRUCT_SIZE;
  set.transfer_manager = create.transfer_manager;
  set.error_code = PJRT_Error_Code_INTERNAL;
  set.error_message = message.data();
  set.error_message_size = message.size();
  MT_CHECK(api.PJRT_AsyncHostToDeviceTransferManager_SetBufferError(&set) == nullptr);
  PJRT_AsyncHostToDeviceTransferManager_Destroy_Args destroy{};
  destroy.struct_size = PJRT_AsyncHostToDeviceTransferManager_Destroy_Args_STRUCT_SIZE;
  destroy.transfer_manager = create.transfer_manager;
  MT_CHECK(api.PJRT_AsyncHostToDeviceTransferManager_Destroy(&destroy) == nullptr);
  return Buffer(client, retrieve.buffer_out);
}

TEST(Executable, LateErrorsSurfaceWithTheirText) {
  auto client = test_client(1);
  const int64_t before = live_buffers();
  {
    const Executable program = Executable::compile(client, kAddOne, {});
    std::vector<Buffer> buffers;
    buffers.push_back(failing_buffer(client, "the cable came off"));
    Array bad(client, array_type(DType::kF32, {4}), std::move(buffers));
    const Array first = run_one(program, {&bad}, bad.type_ref());  // starts all the same
    for (const Array* array : std::initializer_list<const Array*>{&bad, &first}) {
      for (const std::string& text :
           {error_of([&] { array->await(); }), error_of([&] { array->to_host(); })}) {
        EXPECT_TRUE(text.starts_with("device: the device reports: ")) << text;
        EXPECT_NE(text.find("the cable came off"), std::string::npos) << text;
      }
    }
  }
  EXPECT_EQ(live_buffers(), before);
}

}  // namespace
}  // namespace mt::pjrt
