// Any bytes: parsed or refused with an Error; what is parsed can be decoded whole.
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "checkpoint/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mt;
  try {
    const auto source = checkpoint::ByteSource::memory(std::as_bytes(std::span(data, size)), "fuzz");
    const auto file = checkpoint::GgufFile::open(source);
    for (const std::string& name : file->names()) file->read(name);
  } catch (const Error&) {
  }
  return 0;
}
