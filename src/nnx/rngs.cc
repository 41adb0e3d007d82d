#include "nnx/rngs.h"

namespace mt::nnx {

uint32_t name_hash(std::string_view text) {
  uint32_t h = 2166136261U;
  for (const char c : text) h = (h ^ static_cast<uint8_t>(c)) * 16777619U;
  return h;
}

ir::Value Rngs::operator()(std::string_view stream) {
  const auto it = counts_.try_emplace(std::string(stream), 0).first;
  return ir::fold_in(ir::fold_in(key_, name_hash(stream)), it->second++);
}

}  // namespace mt::nnx
