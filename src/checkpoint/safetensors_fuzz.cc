// Any bytes: parsed or refused with an Error; what is parsed can be read whole.
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto source =
        mt::checkpoint::ByteSource::memory(std::as_bytes(std::span(data, size)), "fuzz");
    const auto reader = mt::checkpoint::open_safetensors(source);
    for (const std::string& name : reader->names()) {
      const mt::Tensor tensor = reader->read(name);
      MT_CHECK(tensor.bytes().size() <= size);
    }
  } catch (const mt::Error&) {
  }
  return 0;
}
