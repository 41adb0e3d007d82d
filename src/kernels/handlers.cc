#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

#include "base/error.h"
#include "kernels/cache_attention.h"
#include "kernels/call.h"
#include "kernels/greedy.h"
#include "kernels/kernels.h"
#include "kernels/norm.h"
#include "kernels/products.h"
#include "kernels/sample.h"
#include "pjrt/ffi.h"

namespace mt::kernels {
namespace {

using checkpoint::BlockFormat;

template <typename... Args>
void require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) throw fail(ErrorKind::kShape, format, std::forward<Args>(args)...);
}

const BlockFormat& block_format(const Call& call, const std::string& attribute) {
  const int64_t type = call.integer(attribute);
  const BlockFormat* format = type < 0 || type > UINT32_MAX
                                  ? nullptr
                                  : checkpoint::find_block_format(static_cast<uint32_t>(type));
  require(format != nullptr, "attribute {}: {} is no GGUF type known here", attribute, type);
  return *format;
}

// The columns of a matrix of blocks; checks that it has whole ones.
int64_t columns(const Operand& blocks, const BlockFormat& format, int64_t position) {
  require(blocks.dtype == ffi::kU8 && blocks.rank() >= 1,
          "argument {} is {}, expected u8 blocks of {}", position, to_string(blocks), format.name);
  require(blocks.last() % format.bytes == 0,
          "argument {} is {}: rows are not whole {} blocks of {} bytes", position,
          to_string(blocks), format.name, format.bytes);
  return blocks.last() / format.bytes * format.elements;
}

// Result i has the dimensions of `like`, but for the last one.
void check_result(const Call& call, int64_t i, const Operand& like, int64_t last) {
  const Operand result = call.result(i);
  const std::vector<int64_t> found(result.dims.begin(), result.dims.end());
  std::vector<int64_t> wanted(like.dims.begin(), like.dims.end());
  wanted.back() = last;
  const Operand expected{result.dtype, nullptr, wanted};
  require(found == wanted, "result {} is {}, expected {}", i, to_string(result),
          to_string(expected));
}

void check_f32_result(const Call& call, int64_t i, const Operand& like, int64_t last) {
  const Operand result = call.result(i);
  require(result.dtype == ffi::kF32, "result {} is {}, expected f32", i, to_string(result));
  check_result(call, i, like, last);
}

// x, the first argument, of a product with one weight for each result.
Operand check_x(const Call& call) {
  const Operand x = call.argument(0);
  require(x.dtype == ffi::kF32 && x.rank() >= 1, "argument 0 is {}, expected f32[..., K]",
          to_string(x));
  const int64_t weights = call.argument_count() - 1;
  require(weights >= 1 && call.result_count() == weights,
          "{} weights and {} results: expected a result a weight", weights, call.result_count());
  return x;
}

void dequantise_call(const Call& call) {
  require(call.argument_count() == 1 && call.result_count() == 1,
          "{} arguments and {} results, expected one of each", call.argument_count(),
          call.result_count());
  const BlockFormat& format = block_format(call, "type");
  require(can_dequantise(format), "attribute type: {} can't be dequantised", format.name);
  const Operand blocks = call.argument(0), result = call.result(0);
  const int64_t k = columns(blocks, format, 0);
  require(result.dtype == ffi::kF32 || result.dtype == ffi::kBF16,
          "result 0 is {}, expected f32 or bf16", to_string(result));
  check_result(call, 0, blocks, k);
  dequantise({}, format, blocks.data, blocks.rows(), k,
             result.dtype == ffi::kF32 ? DType::kF32 : DType::kBF16, result.data);
}

void quantised_matmul_call(const Call& call) {
  const Operand x = check_x(call);
  const int64_t k = x.last();
  std::vector<QuantisedWeight> weights;
  for (int64_t i = 0; i < call.result_count(); ++i) {
    const std::string attribute = fmt::format("type_{}", i);
    const BlockFormat& format = block_format(call, attribute);
    require(can_multiply(format), "attribute {}: no product with {} here (mt_matvec takes floats)",
            attribute, format.name);
    const Operand w = call.argument(i + 1);
    require(columns(w, format, i + 1) == k && w.rank() == 2,
            "argument {} is {}, a matrix of {} with {} columns expected", i + 1, to_string(w),
            format.name, k);
    check_f32_result(call, i, x, w.dims[0]);
    const std::string packed = fmt::format("packed_{}", i);
    weights.push_back({&format, w.data, w.dims[0], static_cast<float*>(call.result(i).data),
                       call.has(packed) && call.integer(packed) != 0});
    require(!weights.back().packed || can_pack({}, format, w.dims[0]),
            "attribute {}: {} rows of {} can't be packed on this processor", packed, w.dims[0],
            format.name);
  }
  quantised_matmul({}, static_cast<const float*>(x.data), x.rows(), k, weights);
}

void matvec_call(const Call& call) {
  const Operand x = check_x(call);
  const int64_t k = x.last();
  std::vector<FloatWeight> weights;
  for (int64_t i = 0; i < call.result_count(); ++i) {
    const Operand w = call.argument(i + 1);
    const bool is_float = w.dtype == ffi::kF32 || w.dtype == ffi::kF16 || w.dtype == ffi::kBF16;
    require(is_float && w.rank() == 2 && w.dims[1] == k,
            "argument {} is {}, expected f32, f16 or bf16 [N, {}]", i + 1, to_string(w), k);
    check_f32_result(call, i, x, w.dims[0]);
    const DType dtype = w.dtype == ffi::kF32   ? DType::kF32
                        : w.dtype == ffi::kF16 ? DType::kF16
                                               : DType::kBF16;
    weights.push_back({dtype, w.data, w.dims[0], static_cast<float*>(call.result(i).data)});
  }
  matvec({}, static_cast<const float*>(x.data), x.rows(), k, weights);
}

DType dtype_of(const Operand& operand, int64_t position) {
  switch (operand.dtype) {
    case ffi::kF32: return DType::kF32;
    case ffi::kF16: return DType::kF16;
    case ffi::kBF16: return DType::kBF16;
    case ffi::kS8: return DType::kS8;
    default:
      throw fail(ErrorKind::kShape, "argument {} is {}, expected f32, f16, bf16 or s8", position,
                 to_string(operand));
  }
}

void check_shape(const Operand& found, int64_t position, int32_t dtype,
                 const std::vector<int64_t>& dims) {
  const std::vector<int64_t> found_dims(found.dims.begin(), found.dims.end());
  require(found.dtype == dtype && found_dims == dims, "argument {} is {}, expected {}", position,
          to_string(found), to_string(Operand{dtype, nullptr, dims}));
}

// Result i takes over argument `from`: XLA gives both the same memory, or a copy is made here.
void* take_over(const Call& call, int64_t i, int64_t from) {
  const Operand in = call.argument(from), out = call.result(i);
  require(in.dtype == out.dtype &&
              std::equal(in.dims.begin(), in.dims.end(), out.dims.begin(), out.dims.end()),
          "result {} is {}, expected {}", i, to_string(out), to_string(in));
  if (in.data != out.data) {
    const int64_t size = in.rows() * in.last() * byte_size(dtype_of(in, from));
    std::memcpy(out.data, in.data, static_cast<size_t>(size));
  }
  return out.data;
}

// A token and its log-probability for each row.
void check_choice(const Call& call, int64_t rows) {
  const Operand token = call.result(0), log_prob = call.result(1);
  const auto fits = [&](const Operand& result, int32_t dtype) {
    return result.dtype == dtype && result.rank() == 1 && result.dims[0] == rows;
  };
  require(fits(token, ffi::kS32) && fits(log_prob, ffi::kF32),
          "results are {} and {}, expected s32[{}] and f32[{}]", to_string(token),
          to_string(log_prob), rows, rows);
}

void greedy_call(const Call& call) {
  const Operand logits = call.argument(0), token = call.result(0), log_prob = call.result(1);
  require(call.argument_count() == 1 && call.result_count() == 2 && logits.rank() == 2 &&
              logits.dtype == ffi::kF32 && logits.last() >= 1,
          "argument 0 is {}, expected f32[B, V] alone", to_string(logits));
  check_choice(call, logits.dims[0]);
  greedy({}, static_cast<const float*>(logits.data), logits.dims[0], logits.dims[1],
         static_cast<int32_t*>(token.data), static_cast<float*>(log_prob.data));
}

void sample_call(const Call& call) {
  require(call.argument_count() == 4 && call.result_count() == 2,
          "{} arguments and {} results, expected 4 and 2", call.argument_count(),
          call.result_count());
  const Operand logits = call.argument(0), settings = call.argument(2);
  require(logits.rank() == 2 && logits.dtype == ffi::kF32 && logits.last() >= 1,
          "argument 0 is {}, expected f32[B, V]", to_string(logits));
  const int64_t rows = logits.dims[0];
  check_shape(call.argument(1), 1, ffi::kF32, {rows, logits.last()});
  require(settings.rank() == 2 && settings.dtype == ffi::kF32 && settings.dims[0] == rows &&
              settings.last() > kSampleAdjusts,
          "argument 2 is {}, expected f32[{}, {} or more]", to_string(settings), rows,
          kSampleAdjusts + 1);
  check_shape(call.argument(3), 3, ffi::kU32, {rows, 2});
  check_choice(call, rows);
  const SampleBatch batch{.rows = rows,
                          .vocabulary = logits.last(),
                          .logits = static_cast<const float*>(logits.data),
                          .adjusted = static_cast<const float*>(call.argument(1).data),
                          .settings = static_cast<const float*>(settings.data),
                          .columns = settings.last(),
                          .keys = static_cast<const uint32_t*>(call.argument(3).data)};
  sample({}, batch, static_cast<int32_t*>(call.result(0).data),
         static_cast<float*>(call.result(1).data));
}

void rms_norm_call(const Call& call) {
  const int64_t arguments = call.argument_count();
  require((arguments == 2 || arguments == 4) && call.result_count() == 1,
          "{} arguments and {} results: expected 2 or 4, and 1", arguments, call.result_count());
  const Operand x = call.argument(0), scale = call.argument(1), out = call.result(0);
  require(x.rank() >= 1 && x.last() > 0 && x.dtype != ffi::kS8, "argument 0 is {}", to_string(x));
  check_result(call, 0, x, x.last());
  require(out.dtype == x.dtype, "result 0 is {}, expected {}", to_string(out), to_string(x));
  Norm norm{.rows = x.rows(), .size = x.last(), .dtype = dtype_of(x, 0)};
  norm.scale_dtype = dtype_of(scale, 1);
  require(norm.scale_dtype != DType::kS8, "argument 1 is {}", to_string(scale));
  check_shape(scale, 1, scale.dtype, {x.last()});
  if (arguments == 4) {
    require(x.rank() == 4 && x.last() % 2 == 0, "argument 0 is {}, expected [B, T, N, H]",
            to_string(x));
    for (const int64_t i : {2, 3}) {
      check_shape(call.argument(i), i, x.dtype, {x.dims[0], x.dims[1], x.last() / 2});
    }
    norm.cos = call.argument(2).data;
    norm.sin = call.argument(3).data;
    norm.heads = x.dims[2];
  }
  norm.x = x.data;
  norm.scale = scale.data;
  norm.epsilon = static_cast<float>(call.number("epsilon"));
  norm.factor = static_cast<float>(call.number("factor"));
  norm.out = out.data;
  rms_norm({}, norm);
}

// The caches begin here among the arguments.
constexpr int64_t kFirstCache = 5;

CacheAttention attention_sizes(const Call& call) {
  const Operand q = call.argument(0), keys = call.argument(kFirstCache);
  require(q.rank() == 4, "argument 0 is {}, expected [B, T, N, H]", to_string(q));
  require(keys.rank() == 4 && keys.dims[0] == q.dims[0] && keys.dims[3] == q.dims[3],
          "argument {} is {}, expected [{}, K, C, {}]", kFirstCache, to_string(keys), q.dims[0],
          q.dims[3]);
  CacheAttention a{.rows = q.dims[0],
                   .tokens = q.dims[1],
                   .heads = q.dims[2],
                   .kv_heads = keys.dims[1],
                   .capacity = keys.dims[2],
                   .head_dim = q.dims[3],
                   .window = call.integer("window"),
                   .dtype = dtype_of(q, 0),
                   .cache_dtype = dtype_of(keys, kFirstCache)};
  require(a.kv_heads > 0 && a.capacity > 0 && a.heads % a.kv_heads == 0,
          "{} query heads for argument {}, {}", a.heads, kFirstCache, to_string(keys));
  return a;
}

void check_attention(const Call& call, const CacheAttention& a) {
  const Operand q = call.argument(0), keys = call.argument(kFirstCache), result = call.result(0);
  for (const int64_t i : {1, 2}) {
    check_shape(call.argument(i), i, q.dtype, {a.rows, a.tokens, a.kv_heads, a.head_dim});
  }
  for (const int64_t i : {3, 4}) check_shape(call.argument(i), i, ffi::kS32, {a.rows});
  check_shape(call.argument(kFirstCache + 1), kFirstCache + 1, keys.dtype,
              {a.rows, a.kv_heads, a.capacity, a.head_dim});
  for (int64_t i = kFirstCache + 2; i < call.argument_count(); ++i) {
    check_shape(call.argument(i), i, ffi::kF32, {a.rows, a.kv_heads, a.capacity, 1});
  }
  require(result.dtype == q.dtype && result.rows() * result.last() == q.rows() * q.last(),
          "result 0 is {}, expected {}", to_string(result), to_string(q));
}

void cache_attention_call(const Call& call) {
  const int64_t caches = call.argument_count() - kFirstCache;
  require((caches == 2 || caches == 4) && call.result_count() == 1 + caches,
          "{} arguments and {} results: expected 7 and 3, or with scales 9 and 5",
          call.argument_count(), call.result_count());
  CacheAttention a = attention_sizes(call);
  require((a.cache_dtype == DType::kS8) == (caches == 4), "argument {} is {}, with {} arguments",
          kFirstCache, to_string(call.argument(kFirstCache)), call.argument_count());
  check_attention(call, a);
  const auto integers = [&](int64_t i) {
    return std::span(static_cast<const int32_t*>(call.argument(i).data),
                     static_cast<size_t>(a.rows));
  };
  a.q = call.argument(0).data;
  a.k = call.argument(1).data;
  a.v = call.argument(2).data;
  a.start = integers(3);
  a.count = integers(4);
  a.keys = take_over(call, 1, kFirstCache);
  a.values = take_over(call, 2, kFirstCache + 1);
  if (caches == 4) {
    a.key_scales = static_cast<float*>(take_over(call, 3, kFirstCache + 2));
    a.value_scales = static_cast<float*>(take_over(call, 4, kFirstCache + 3));
  }
  a.context = call.result(0).data;
  cache_attention({}, a);
}

template <void (*kBody)(const Call&)>
ffi::Error* handler(ffi::CallFrame* frame) {
  return run_handler(frame, kBody);
}

struct Target {
  const char* name;
  ffi::Handler* handler;
};
constexpr Target kTargets[] = {
    {"mt_dequantise", handler<dequantise_call>},
    {"mt_quantised_matmul", handler<quantised_matmul_call>},
    {"mt_matvec", handler<matvec_call>},
    {"mt_cache_attention", handler<cache_attention_call>},
    {"mt_greedy", handler<greedy_call>},
    {"mt_sample", handler<sample_call>},
    {"mt_rms_norm", handler<rms_norm_call>},
};

}  // namespace

bool multiplies_many_rows() { return kernels_for(best_instruction_set()).panel_rows > 0; }

void register_cpu_handlers(const pjrt::Client& client) {
  if (!client.is_cpu()) {
    throw fail(ErrorKind::kDevice, "CPU kernels can't be registered with platform {}",
               client.platform_name());
  }
  // A plugin takes a name only once, and stays loaded until the process ends.
  static std::mutex mutex;
  static std::set<std::string> plugins;
  const std::lock_guard<std::mutex> lock(mutex);
  if (plugins.contains(client.plugin().path())) return;
  for (const Target& target : kTargets) {
    pjrt::register_ffi_handler(client, target.name, "Host",
                               reinterpret_cast<void*>(target.handler));
  }
  plugins.insert(client.plugin().path());
}

}  // namespace mt::kernels
