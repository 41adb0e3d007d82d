#include "pjrt/buffer.h"

#include <atomic>
#include <utility>

#include "pjrt/api.h"

namespace mt::pjrt {
namespace {

std::atomic<int64_t> live{0};

struct TypePair {
  DType dtype;
  PJRT_Buffer_Type type;
};
constexpr TypePair kTypes[] = {
    {DType::kPred, PJRT_Buffer_Type_PRED}, {DType::kS8, PJRT_Buffer_Type_S8},
    {DType::kS32, PJRT_Buffer_Type_S32},   {DType::kS64, PJRT_Buffer_Type_S64},
    {DType::kU8, PJRT_Buffer_Type_U8},     {DType::kU32, PJRT_Buffer_Type_U32},
    {DType::kU64, PJRT_Buffer_Type_U64},   {DType::kF16, PJRT_Buffer_Type_F16},
    {DType::kBF16, PJRT_Buffer_Type_BF16}, {DType::kF32, PJRT_Buffer_Type_F32},
    {DType::kF64, PJRT_Buffer_Type_F64},
};

PJRT_Buffer_Type to_pjrt(DType dtype) {
  for (const TypePair& pair : kTypes) {
    if (pair.dtype == dtype) return pair.type;
  }
  MT_CHECK(false);
  return PJRT_Buffer_Type_INVALID;
}

}  // namespace

int64_t live_buffers() { return live.load(); }

Buffer::Buffer(std::shared_ptr<const Client> client, PJRT_Buffer* buffer)
    : client_(std::move(client)), buffer_(buffer) {
  live.fetch_add(1);
}

Buffer::~Buffer() { destroy(); }

Buffer::Buffer(Buffer&& other) noexcept
    : client_(std::move(other.client_)), buffer_(std::exchange(other.buffer_, nullptr)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    destroy();
    client_ = std::move(other.client_);
    buffer_ = std::exchange(other.buffer_, nullptr);
  }
  return *this;
}

void Buffer::destroy() noexcept {
  if (buffer_ == nullptr) return;
  PJRT_Buffer_Destroy_Args args{};
  args.buffer = std::exchange(buffer_, nullptr);
  call_quietly(client_->api(), args);
  live.fetch_sub(1);
}

Buffer Buffer::from_host(std::shared_ptr<const Client> client, const Tensor& tensor, size_t device,
                         HostMemory memory) {
  static const std::byte kNothing{};  // an empty tensor has no address
  PJRT_Client_BufferFromHostBuffer_Args args{};
  args.client = client->raw();
  args.data = tensor.bytes().empty() ? &kNothing : tensor.bytes().data();
  args.type = to_pjrt(tensor.dtype());
  args.dims = tensor.shape().data();
  args.num_dims = tensor.shape().size();
  args.host_buffer_semantics = memory == HostMemory::kZeroCopy
                                   ? PJRT_HostBufferSemantics_kImmutableZeroCopy
                                   : PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
  args.device = client->raw_device(device);
  call(client->api(), args);
  Event done(client, args.done_with_host_buffer);
  Buffer buffer(std::move(client), args.buffer);
  done.keep_until_ready(std::make_shared<Tensor>(tensor));
  return buffer;
}

DType Buffer::dtype() const {
  PJRT_Buffer_ElementType_Args args{};
  args.buffer = buffer_;
  call(client_->api(), args);
  for (const TypePair& pair : kTypes) {
    if (pair.type == args.type) return pair.dtype;
  }
  throw fail(ErrorKind::kDevice, "a device buffer has element type {}, which is not supported",
             static_cast<int>(args.type));
}

Shape Buffer::shape() const {
  PJRT_Buffer_Dimensions_Args args{};
  args.buffer = buffer_;
  call(client_->api(), args);
  return Shape(args.dims, args.dims + args.num_dims);
}

int64_t Buffer::bytes() const {
  PJRT_Buffer_OnDeviceSizeInBytes_Args args{};
  args.buffer = buffer_;
  call(client_->api(), args);
  return static_cast<int64_t>(args.on_device_size_in_bytes);
}

Event Buffer::ready() const {
  PJRT_Buffer_ReadyEvent_Args args{};
  args.buffer = buffer_;
  call(client_->api(), args);
  return Event(client_, args.event);
}

void Buffer::to_host(std::span<std::byte> out) const {
  if (out.empty()) return ready().await();
  const size_t rank = shape().size();
  std::vector<int64_t> minor_to_major(rank);
  for (size_t i = 0; i < rank; ++i) minor_to_major[i] = static_cast<int64_t>(rank - 1 - i);
  PJRT_Buffer_MemoryLayout layout{};  // row-major, whatever the device keeps
  layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = rank;
  PJRT_Buffer_ToHostBuffer_Args args{};
  args.src = buffer_;
  args.host_layout = &layout;
  args.dst = out.data();
  args.dst_size = out.size();
  call(client_->api(), args);
  Event(client_, args.event).await();
}

}  // namespace mt::pjrt
