#include "kernels/cache_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"

namespace mt::kernels {
namespace {

size_t index_of(DType dtype) {
  MT_CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
           dtype == DType::kS8);
  const Float type = dtype == DType::kF32    ? Float::kF32
                     : dtype == DType::kF16  ? Float::kF16
                     : dtype == DType::kBF16 ? Float::kBF16
                                             : Float::kS8;
  return static_cast<size_t>(type);
}

void narrow(const float* in, int64_t count, DType dtype, void* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, in, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  auto* bits = static_cast<uint16_t*>(out);
  for (int64_t i = 0; i < count; ++i) {
    bits[i] =
        dtype == DType::kBF16 ? BFloat16::from_float(in[i]).bits : Float16::from_float(in[i]).bits;
  }
}

// 8-bit integers and the scale that they share: NaN if x has a number that is not finite.
float quantise(const float* x, int64_t count, int8_t* out) {
  float largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    finite = finite && std::isfinite(x[i]);
    largest = std::max(largest, std::abs(x[i]));
  }
  const float scale = largest / 127.0F;
  const bool usable = finite && scale >= std::numeric_limits<float>::min();
  for (int64_t i = 0; i < count; ++i) {
    out[i] = usable ? static_cast<int8_t>(std::floor(x[i] / scale + 0.5F)) : int8_t{0};
  }
  if (!finite) return std::numeric_limits<float>::quiet_NaN();
  return usable ? scale : 0.0F;
}

// One head of one row of the cache.
struct Head {
  const CacheAttention& a;
  int64_t index;  // row * kv_heads + head

  int64_t row() const { return index / a.kv_heads; }
  int64_t filled() const {
    const int64_t start = a.start[static_cast<size_t>(row())];
    return std::min(start + 1, a.capacity);
  }
  std::byte* entry(void* cache, int64_t i) const {
    return static_cast<std::byte*>(cache) +
           (index * a.capacity + i) * a.head_dim * byte_size(a.cache_dtype);
  }
  float* scale(float* scales, int64_t i) const {
    return scales == nullptr ? nullptr : scales + index * a.capacity + i;
  }
};

void put(const Head& head, const float* token, void* cache, float* scales) {
  const CacheAttention& a = head.a;
  const int64_t at = a.start[static_cast<size_t>(head.row())] % a.capacity;
  std::byte* to = head.entry(cache, at);
  if (a.cache_dtype != DType::kS8) return narrow(token, a.head_dim, a.cache_dtype, to);
  *head.scale(scales, at) = quantise(token, a.head_dim, reinterpret_cast<int8_t*>(to));
}

// A head's entries, cut into pieces of kMostEntries.
struct Piece {
  int64_t head, begin, end;
};

std::vector<Piece> pieces_of(const CacheAttention& a) {
  std::vector<Piece> pieces;
  for (int64_t h = 0; h < a.rows * a.kv_heads; ++h) {
    const int64_t filled = Head{a, h}.filled();
    for (int64_t i = 0; i < filled; i += kMostEntries) {
      pieces.push_back({h, i, std::min(filled, i + kMostEntries)});
    }
  }
  return pieces;
}

// What the pieces [first, last) of one head say of query head g, joined.
void join(const float* partial, int64_t pieces, int64_t heads, int64_t head_dim, int64_t g,
          float* context) {
  const int64_t piece_size = heads * (2 + head_dim);
  const auto max_of = [&](int64_t p) { return partial[p * piece_size + g]; };
  float most = max_of(0);
  for (int64_t p = 1; p < pieces; ++p) {
    if (!(max_of(p) <= most)) most = std::isnan(most) ? most : max_of(p);
  }
  float sum = 0;
  std::fill_n(context, head_dim, 0.0F);
  for (int64_t p = 0; p < pieces; ++p) {
    const float* piece = partial + p * piece_size;
    const float weight = pieces == 1 ? 1.0F : std::exp(max_of(p) - most);
    sum += weight * piece[heads + g];
    const float* values = piece + 2 * heads + g * head_dim;
    for (int64_t i = 0; i < head_dim; ++i) context[i] += weight * values[i];
  }
  for (int64_t i = 0; i < head_dim; ++i) context[i] /= sum;
}

}  // namespace

void cache_attention(const Engine& engine, const CacheAttention& a) {
  for (const int32_t start : a.start) {
    if (start < 0) throw fail(ErrorKind::kShape, "a row of {} tokens in the cache", start);
  }
  const KernelTable& best = kernels_for(engine.set);
  const KernelTable& table =
      a.head_dim % best.attention.lanes == 0 ? best : kernels_for(InstructionSet::kScalar);
  const auto widen = [&](const void* in, int64_t count) {
    std::vector<float> out(static_cast<size_t>(count));
    best.widen[index_of(a.dtype)](in, count, out.data());
    return out;
  };
  const std::vector<float> q = widen(a.q, a.rows * a.heads * a.head_dim);
  const std::vector<float> k = widen(a.k, a.rows * a.kv_heads * a.head_dim);
  const std::vector<float> v = widen(a.v, a.rows * a.kv_heads * a.head_dim);
  for (int64_t h = 0; h < a.rows * a.kv_heads; ++h) {
    put({a, h}, k.data() + h * a.head_dim, a.keys, a.key_scales);
    put({a, h}, v.data() + h * a.head_dim, a.values, a.value_scales);
  }
  const int64_t group = a.heads / a.kv_heads, piece_size = group * (2 + a.head_dim);
  const std::vector<Piece> pieces = pieces_of(a);
  std::vector<float> partial(pieces.size() * static_cast<size_t>(piece_size));
  const auto attend = table.attention.attend[index_of(a.cache_dtype)];
  engine.pool.run(static_cast<int64_t>(pieces.size()), [&](int64_t i, int) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    const Head head{a, piece.head};
    float* out = partial.data() + i * piece_size;
    attend({head.entry(a.keys, piece.begin), head.entry(a.values, piece.begin),
            head.scale(a.key_scales, piece.begin), head.scale(a.value_scales, piece.begin),
            piece.end - piece.begin, a.head_dim},
           q.data() + piece.head * group * a.head_dim, group, {out, out + group, out + 2 * group});
  });
  std::vector<float> context(q.size());
  for (size_t first = 0, last = 0; first < pieces.size(); first = last) {
    while (last < pieces.size() && pieces[last].head == pieces[first].head) ++last;
    for (int64_t g = 0; g < group; ++g) {
      join(partial.data() + static_cast<int64_t>(first) * piece_size,
           static_cast<int64_t>(last - first), group, a.head_dim, g,
           context.data() + (pieces[first].head * group + g) * a.head_dim);
    }
  }
  narrow(context.data(), static_cast<int64_t>(context.size()), a.dtype, a.context);
}

}  // namespace mt::kernels
