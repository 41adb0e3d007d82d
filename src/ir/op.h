// The operations of the graph. Each kind has one row in kOpNames here, one rule in
// autodiff/rules.cc (or a written reason why it has none), and shape rules at its function in
// ops.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mt::ir {

enum class OpKind : uint8_t {
  // leaves
  kParameter,
  kConstant,
  kIota,
  // elementwise, one operand
  kNegate,
  kExp,
  kLog,
  kLog1p,
  kTanh,
  kRsqrt,
  kSqrt,
  kSine,
  kCosine,
  kAbs,
  kSign,
  kFloor,
  kNot,
  kConvert,
  kBitcast,
  kIsFinite,
  // elementwise, two operands
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kMaximum,
  kMinimum,
  kPower,
  kRemainder,
  kAnd,
  kOr,
  kXor,
  kShiftLeft,
  kShiftRightLogical,
  kCompare,
  kSelect,
  // shape
  kBroadcast,
  kReshape,
  kTranspose,
  kSlice,
  kPad,
  kConcatenate,
  kDynamicSlice,
  kDynamicUpdateSlice,
  kTakeRows,
  kScatterAddRows,
  // contraction and reduction
  kDotGeneral,
  kReduceSum,
  kReduceMax,
  kReduceMin,
  // structure
  kName,
  kBarrier,
  kShardingConstraint,
  kCustomCall,
  kWhile,
  kScan,
  kRemat,
  kCustomVjp,
  kManualComputation,
  kAllReduce,
  kCount,
};

inline constexpr size_t kOpCount = static_cast<size_t>(OpKind::kCount);

inline constexpr std::array<std::string_view, kOpCount> kOpNames{"parameter",
                                                                 "constant",
                                                                 "iota",
                                                                 "negate",
                                                                 "exponential",
                                                                 "log",
                                                                 "log_plus_one",
                                                                 "tanh",
                                                                 "rsqrt",
                                                                 "sqrt",
                                                                 "sine",
                                                                 "cosine",
                                                                 "abs",
                                                                 "sign",
                                                                 "floor",
                                                                 "not",
                                                                 "convert",
                                                                 "bitcast_convert",
                                                                 "is_finite",
                                                                 "add",
                                                                 "subtract",
                                                                 "multiply",
                                                                 "divide",
                                                                 "maximum",
                                                                 "minimum",
                                                                 "power",
                                                                 "remainder",
                                                                 "and",
                                                                 "or",
                                                                 "xor",
                                                                 "shift_left",
                                                                 "shift_right_logical",
                                                                 "compare",
                                                                 "select",
                                                                 "broadcast_in_dim",
                                                                 "reshape",
                                                                 "transpose",
                                                                 "slice",
                                                                 "pad",
                                                                 "concatenate",
                                                                 "dynamic_slice",
                                                                 "dynamic_update_slice",
                                                                 "take_rows",
                                                                 "scatter_add_rows",
                                                                 "dot_general",
                                                                 "reduce_sum",
                                                                 "reduce_max",
                                                                 "reduce_min",
                                                                 "name",
                                                                 "optimization_barrier",
                                                                 "sharding_constraint",
                                                                 "custom_call",
                                                                 "while",
                                                                 "scan",
                                                                 "remat",
                                                                 "custom_vjp",
                                                                 "manual_computation",
                                                                 "all_reduce"};

static_assert(!kOpNames.back().empty(), "an op has no name");

inline std::string_view name(OpKind kind) { return kOpNames[static_cast<size_t>(kind)]; }

}  // namespace mt::ir
