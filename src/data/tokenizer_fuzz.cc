// Any bytes as a tokenizer file: refused by an Error, or a tokenizer that encodes and decodes.
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "data/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto tokenizer = mt::data::Tokenizer::from_bytes(
        std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
    const auto ids = tokenizer.encode("The quick brown fox\n\n jumps over \xF0\x9F\xA6\x99.");
    (void)tokenizer.decode(ids);
  } catch (const mt::Error&) {
  }
  return 0;
}
