// Any bytes: parsed or refused with an Error; what is parsed can be decoded whole.
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "checkpoint/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto source =
        mt::checkpoint::ByteSource::memory(std::as_bytes(std::span(data, size)), "fuzz");
    const auto file = mt::checkpoint::GgufFile::open(source);
    for (const std::string& name : file->names()) file->read(name);
  } catch (const mt::Error&) {
  }
  return 0;
}
