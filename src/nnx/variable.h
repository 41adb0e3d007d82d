// Variables: the leaves of a module tree, typed by what they are for (flax.nnx's names).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/ops.h"
#include "pjrt/array.h"

namespace mt::nnx {

enum class VariableKind : uint8_t {
  kParam,
  kBatchStat,
  kCache,
  kIntermediate,
  kRngState,
  kOptState
};
std::string_view name(VariableKind kind);  // "Param", ...

// (keys u32[n, 2], shape, dtype) -> n first values, [n, shape...]. `label` tells initialisers
// apart, so that variables of equal label and shape share one program. No function: zeros.
struct Initializer {
  std::string label = "zeros";
  std::function<ir::Value(ir::Value keys, const Shape& shape, DType dtype)> make;
};

// A parameter kept as products with few rows want it, [out, in]: in the blocks of the file it came
// from, u8 [rows, bytes of a row], or as floats [rows, columns].
struct StoredForm {
  int64_t block_type = -1;  // ggml's number, of floats too
  int64_t columns = 0;
  bool multiplied = false;  // of a token table: by sqrt(emb_dim)
  int64_t most_rows = 16;   // of x, for which the CPU's kernels are faster than decoding it first
  bool packed = false;      // its rows lie as kernels::pack_rows puts them
  Shape shape;              // the parameter's own
};

struct Variable {
  Variable() = default;
  Variable(VariableKind kind_, ir::Type type_, std::vector<std::string> axes_,
           Initializer init_ = {})
      : kind(kind_), type(std::move(type_)), axes(std::move(axes_)), init(std::move(init_)) {}

  VariableKind kind = VariableKind::kParam;
  ir::Type type;
  std::vector<std::string> axes;  // logical axis names, one a dimension ("" = none)
  Initializer init;
  // A variable of scanned layers: the axis along which `stack_length` layers are stacked; -1: none.
  int64_t stack_axis = -1;
  int64_t stack_length = 0;
  // Set: `type` is not the parameter's own but that of a stored matrix.
  std::optional<StoredForm> stored;

  ir::Value value;                     // while a program is traced
  std::shared_ptr<pjrt::Array> array;  // the device's copy, between programs

  Shape layer_shape() const;  // without the stacked axis
};

inline Variable param(DType dtype, Shape shape, std::vector<std::string> axes, Initializer init) {
  return {VariableKind::kParam, {dtype, std::move(shape)}, std::move(axes), std::move(init)};
}

namespace initializers {
Initializer zeros();
Initializer ones();
Initializer normal(double stddev);
// Variance 1/fan_in; `truncated`: cut at two standard deviations and rescaled to that variance.
Initializer variance_scaling(int64_t fan_in, bool truncated);
}  // namespace initializers

}  // namespace mt::nnx
