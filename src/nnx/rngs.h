// Named streams of keys inside a traced program, as flax.nnx.Rngs: rngs("dropout") gives
// fold_in(stream key, count) and counts on.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "ir/random.h"

namespace mt::nnx {

class Rngs {
 public:
  explicit Rngs(ir::Value key) : key_(key) {}
  ir::Value operator()(std::string_view stream);  // a fresh u32[2] key
  // Streams of their own for one iteration of a scan (`index`: an integer scalar) or one layer.
  Rngs fork(ir::Value index) const { return Rngs(ir::fold_in(key_, index)); }
  Rngs fork(uint32_t index) const { return Rngs(ir::fold_in(key_, index)); }
  ir::Value key() const { return key_; }

 private:
  ir::Value key_;
  std::map<std::string, uint32_t, std::less<>> counts_;
};

// FNV-1a of a stream's or a parameter's name: what its key is folded with.
uint32_t name_hash(std::string_view text);

}  // namespace mt::nnx
