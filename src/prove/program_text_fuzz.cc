// Any text: read or refused with an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "prove/program_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    mt::prove::read_program({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const mt::Error&) {
  }
  return 0;
}
