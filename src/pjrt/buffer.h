// Memory on one device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/tensor.h"
#include "pjrt/client.h"
#include "pjrt/event.h"

struct PJRT_Buffer;

namespace mt::pjrt {

enum class HostMemory {
  kCopy,      // the device gets its own copy; the tensor is kept until the transfer is done
  kZeroCopy,  // the device may read the tensor's bytes in place (CPU, if they are aligned to 64);
              // nobody may change them while the buffer lives. Elsewhere the same as kCopy.
};

class Buffer {
 public:
  // Starts a transfer and returns. `tensor` is the whole contents.
  static Buffer from_host(std::shared_ptr<const Client> client, const Tensor& tensor, size_t device,
                          HostMemory memory = HostMemory::kCopy);
  Buffer(std::shared_ptr<const Client> client, PJRT_Buffer* buffer);  // takes ownership
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  DType dtype() const;
  Shape shape() const;
  int64_t bytes() const;  // on the device
  Event ready() const;
  // Waits, then copies row-major into `out`, whose size must be that of the contents.
  // Throws the error of the program that should have written the buffer.
  void to_host(std::span<std::byte> out) const;
  PJRT_Buffer* raw() const { return buffer_; }

 private:
  void destroy() noexcept;
  std::shared_ptr<const Client> client_;
  PJRT_Buffer* buffer_ = nullptr;
};

// Buffers of this process that exist now, over all clients: tests use it to prove that none leak.
int64_t live_buffers();

}  // namespace mt::pjrt
