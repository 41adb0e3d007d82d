#include "kernels/cache_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "kernels/floats.h"

namespace mt::kernels {
namespace {

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

// x as the cache would give it back.
void round_as_stored(float* x, int64_t count, DType dtype, int8_t* integers) {
  if (dtype == DType::kBF16) {
    for (int64_t i = 0; i < count; ++i) x[i] = BFloat16::from_float(x[i]).to_float();
  } else if (dtype == DType::kF16) {
    for (int64_t i = 0; i < count; ++i) x[i] = Float16::from_float(x[i]).to_float();
  } else if (dtype == DType::kS8) {
    const float scale = quantise(x, count, integers);
    for (int64_t i = 0; i < count; ++i) x[i] = scale * static_cast<float>(integers[i]);
  }
}

// One head of one row of the cache.
struct Head {
  const CacheAttention& a;
  int64_t index;  // row * kv_heads + head

  int64_t row() const { return index / a.kv_heads; }
  int64_t start() const { return a.start[static_cast<size_t>(row())]; }
  int64_t count() const { return a.count[static_cast<size_t>(row())]; }
  std::byte* entry(void* cache, int64_t i) const {
    return static_cast<std::byte*>(cache) +
           (index * a.capacity + i) * a.head_dim * byte_size(a.cache_dtype);
  }
  float* scale(float* scales, int64_t i) const {
    return scales == nullptr ? nullptr : scales + index * a.capacity + i;
  }
  // Where new token t lies in k or v, in elements.
  int64_t token(int64_t t) const {
    return ((row() * a.tokens + t) * a.kv_heads + index % a.kv_heads) * a.head_dim;
  }
};

// The kernels that fit these sizes.
const AttentionKernels& attention_kernels(const Engine& engine, int64_t head_dim) {
  const AttentionKernels& best = kernels_for(engine.set).attention;
  if (head_dim % best.lanes == 0) return best;
  return kernels_for(InstructionSet::kScalar).attention;
}

std::vector<float> widened(const Engine& engine, const void* in, int64_t count, DType dtype) {
  std::vector<float> out(static_cast<size_t>(count));
  kernels_for(engine.set).widen[index_of(dtype)](in, count, out.data());
  return out;
}

void put(const Head& head, int64_t position, const float* token, void* cache, float* scales) {
  const CacheAttention& a = head.a;
  const int64_t at = position % a.capacity;
  std::byte* to = head.entry(cache, at);
  if (a.cache_dtype != DType::kS8) return narrow(token, a.head_dim, a.cache_dtype, to);
  *head.scale(scales, at) = quantise(token, a.head_dim, reinterpret_cast<int8_t*>(to));
}

// --- one token a row at a time: the cache is read as it is

// Entries [begin, end) of a head's ring.
struct Piece {
  int64_t head, begin, end;
};

// Those that the token at `position` sees: the latest ones, in one stretch of the ring or in two.
// Cut so that a piece depends on nothing but the position.
void add_pieces(const CacheAttention& a, int64_t head, int64_t position,
                std::vector<Piece>& pieces) {
  const int64_t window = a.window > 0 ? std::min(a.window, a.capacity) : a.capacity;
  const int64_t seen = std::min(position + 1, window), last = position % a.capacity;
  const auto add = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kMostEntries) {
      pieces.push_back({head, i, std::min(end, i + kMostEntries)});
    }
  };
  if (seen > last + 1) add(a.capacity - (seen - last - 1), a.capacity);
  add(std::max<int64_t>(0, last + 1 - seen), last + 1);
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

// New token t of every row that has one.
void attend_one(const Engine& engine, const CacheAttention& a, int64_t t) {
  const int64_t group = a.heads / a.kv_heads, h = a.head_dim, piece_size = group * (2 + h);
  const auto at = [&](const void* x, int64_t element) {
    return static_cast<const std::byte*>(x) + element * byte_size(a.dtype);
  };
  std::vector<Piece> pieces;
  for (int64_t i = 0; i < a.rows * a.kv_heads; ++i) {
    const Head head{a, i};
    if (a.tokens > 1 && t >= head.count()) continue;
    const int64_t position = head.start() + t;
    const auto k = widened(engine, at(a.k, head.token(t)), h, a.dtype);
    const auto v = widened(engine, at(a.v, head.token(t)), h, a.dtype);
    put(head, position, k.data(), a.keys, a.key_scales);
    put(head, position, v.data(), a.values, a.value_scales);
    add_pieces(a, i, position, pieces);
  }
  std::vector<float> partial(pieces.size() * static_cast<size_t>(piece_size));
  const auto attend = attention_kernels(engine, h).attend[index_of(a.cache_dtype)];
  // Where the query heads of one head of the cache lie in q and in context, in elements.
  const auto place = [&](int64_t head) {
    const int64_t row = head / a.kv_heads, first = head % a.kv_heads * group;
    return ((row * a.tokens + t) * a.heads + first) * h;
  };
  engine.pool.run(static_cast<int64_t>(pieces.size()), [&](int64_t i, int) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    const Head head{a, piece.head};
    const auto q = widened(engine, at(a.q, place(piece.head)), group * h, a.dtype);
    float* out = partial.data() + i * piece_size;
    attend({head.entry(a.keys, piece.begin), head.entry(a.values, piece.begin),
            head.scale(a.key_scales, piece.begin), head.scale(a.value_scales, piece.begin),
            piece.end - piece.begin, h},
           q.data(), group, {out, out + group, out + 2 * group});
  });
  std::vector<float> context(static_cast<size_t>(group * h));
  for (size_t first = 0, last = 0; first < pieces.size(); first = last) {
    while (last < pieces.size() && pieces[last].head == pieces[first].head) ++last;
    for (int64_t g = 0; g < group; ++g) {
      join(partial.data() + static_cast<int64_t>(first) * piece_size,
           static_cast<int64_t>(last - first), group, h, g, context.data() + g * h);
    }
    narrow(context.data(), group * h, a.dtype,
           static_cast<std::byte*>(a.context) + place(pieces[first].head) * byte_size(a.dtype));
  }
}

void clear_context(const CacheAttention& a) {
  const auto elements = static_cast<size_t>(a.rows * a.tokens * a.heads * a.head_dim);
  std::memset(a.context, 0, elements * static_cast<size_t>(byte_size(a.dtype)));
}

// --- many tokens a row at once: keys and values are brought into the order of their positions
// first

// Key i of a head is at position first + i; the last ones are the new tokens'.
struct Ordered {
  int64_t first = 0, old = 0, count = 0;
  std::vector<float> keys, values;  // as AttentionBlock wants them
};

Ordered order(const Head& head, int64_t lanes) {
  const CacheAttention& a = head.a;
  Ordered out;
  out.old = std::min(head.start(), a.capacity);
  out.first = head.start() - out.old;
  out.count = out.old + head.count();
  const int64_t tiles = (out.count + lanes - 1) / lanes;
  out.keys.resize(static_cast<size_t>(tiles * lanes * a.head_dim));
  out.values.resize(static_cast<size_t>(out.count * a.head_dim));
  return out;
}

// Keys [begin, end) of a head.
void gather(const Engine& engine, const Head& head, int64_t lanes, int64_t begin, int64_t end,
            Ordered& out) {
  const CacheAttention& a = head.a;
  const int64_t h = a.head_dim;
  const KernelTable& table = kernels_for(engine.set);
  std::vector<float> key(static_cast<size_t>(h));
  std::vector<int8_t> integers(static_cast<size_t>(h));
  const auto read = [&](int64_t i, const void* fresh, void* cache, float* scales, float* to) {
    if (i >= out.old) {
      const auto* from =
          static_cast<const std::byte*>(fresh) + head.token(i - out.old) * byte_size(a.dtype);
      table.widen[index_of(a.dtype)](from, h, to);
      return round_as_stored(to, h, a.cache_dtype, integers.data());
    }
    const int64_t at = (out.first + i) % a.capacity;
    const std::byte* from = head.entry(cache, at);
    if (a.cache_dtype != DType::kS8) {
      return table.widen[index_of(a.cache_dtype)](from, h, to);
    }
    const float scale = *head.scale(scales, at);
    for (int64_t j = 0; j < h; ++j) {
      to[j] = scale * static_cast<float>(reinterpret_cast<const int8_t*>(from)[j]);
    }
  };
  for (int64_t i = begin; i < end; ++i) {
    read(i, a.v, a.values, a.value_scales, out.values.data() + i * h);
    read(i, a.k, a.keys, a.key_scales, key.data());
    float* tile = out.keys.data() + i / lanes * lanes * h + i % lanes;
    for (int64_t j = 0; j < h; ++j) tile[j * lanes] = key[static_cast<size_t>(j)];
  }
}

// The new tokens that still lie in the ring afterwards.
void put_all(const Head& head, const Ordered& ordered) {
  const CacheAttention& a = head.a;
  const int64_t h = a.head_dim, last = head.count();
  std::vector<float> token(static_cast<size_t>(h));
  const auto from = [&](const void* x, int64_t t) {
    const auto* bytes = static_cast<const std::byte*>(x) + head.token(t) * byte_size(a.dtype);
    kernels_for(InstructionSet::kScalar).widen[index_of(a.dtype)](bytes, h, token.data());
    return token.data();
  };
  for (int64_t t = std::max<int64_t>(0, last - a.capacity); t < last; ++t) {
    const int64_t position = ordered.first + ordered.old + t;
    put(head, position, from(a.k, t), a.keys, a.key_scales);
    put(head, position, from(a.v, t), a.values, a.value_scales);
  }
}

constexpr int64_t kRowsOfABlock = 64;

// The tokens [begin, end) of a row, those query heads that share one head of the cache.
struct BlockOfTokens {
  int64_t head, begin, end;
};

void attend_tokens(const Engine& engine, const CacheAttention& a, const BlockOfTokens& block,
                   const Ordered& ordered) {
  const Head head{a, block.head};
  const int64_t h = a.head_dim, group = a.heads / a.kv_heads;
  const int64_t used = (block.end - block.begin) * group;
  const int64_t rows = (used + kRowsOfQ - 1) / kRowsOfQ * kRowsOfQ;
  const auto size = [](int64_t n) { return static_cast<size_t>(n); };
  std::vector<float> q(size(rows * h)), row(size(h)), scores(size(rows * kMostEntries)),
      sum(size(rows)), context(size(rows * h));
  std::vector<float> max(size(rows), -std::numeric_limits<float>::infinity());
  std::vector<int64_t> first(size(rows)), last(size(rows));
  AttentionBlock b{ordered.keys.data(), ordered.values.data(), q.data(), rows, h};
  b.begin = ordered.count;
  const KernelTable& table = kernels_for(engine.set);
  // Where the query head that is row r lies in q and in context, in elements.
  const auto place = [&](int64_t r) {
    const int64_t t = block.begin + r / group, n = block.head % a.kv_heads * group + r % group;
    return ((head.row() * a.tokens + t) * a.heads + n) * h;
  };
  for (int64_t r = 0; r < used; ++r) {
    table.widen[index_of(a.dtype)](
        static_cast<const std::byte*>(a.q) + place(r) * byte_size(a.dtype), h, row.data());
    float* to = q.data() + r / kRowsOfQ * kRowsOfQ * h + r % kRowsOfQ;
    for (int64_t i = 0; i < h; ++i) to[i * kRowsOfQ] = row[size(i)];
    const int64_t key = ordered.old + block.begin + r / group;
    first[size(r)] = a.window > 0 ? std::max<int64_t>(0, key + 1 - a.window) : 0;
    last[size(r)] = key + 1;
    b.begin = std::min(b.begin, first[size(r)]);
    b.end = std::max(b.end, last[size(r)]);
  }
  b.row_begin = first.data();
  b.row_end = last.data();
  b.scores = scores.data();
  b.max = max.data();
  b.sum = sum.data();
  b.context = context.data();
  attention_kernels(engine, h).attend_block(b);
  for (int64_t r = 0; r < used; ++r) {
    float* out = context.data() + r * h;
    for (int64_t i = 0; i < h; ++i) out[i] /= sum[size(r)];
    narrow(out, h, a.dtype, static_cast<std::byte*>(a.context) + place(r) * byte_size(a.dtype));
  }
}

void attend_many(const Engine& engine, const CacheAttention& a) {
  const int64_t lanes = attention_kernels(engine, a.head_dim).lanes;
  const int64_t heads = a.rows * a.kv_heads, group = a.heads / a.kv_heads;
  constexpr int64_t kKeysOfATask = 64;
  std::vector<Ordered> ordered;
  std::vector<Piece> gathers;
  std::vector<BlockOfTokens> blocks;
  const int64_t tokens = std::max<int64_t>(1, kRowsOfABlock / group);
  for (int64_t i = 0; i < heads; ++i) {
    const Head head{a, i};
    ordered.push_back(order(head, lanes));
    for (int64_t k = 0; k < ordered.back().count; k += kKeysOfATask) {
      gathers.push_back({i, k, std::min(ordered.back().count, k + kKeysOfATask)});
    }
    for (int64_t t = 0; t < head.count(); t += tokens) {
      blocks.push_back({i, t, std::min(head.count(), t + tokens)});
    }
  }
  engine.pool.run(static_cast<int64_t>(gathers.size()), [&](int64_t i, int) {
    const Piece& p = gathers[static_cast<size_t>(i)];
    gather(engine, {a, p.head}, lanes, p.begin, p.end, ordered[static_cast<size_t>(p.head)]);
  });
  engine.pool.run(heads, [&](int64_t i, int) { put_all({a, i}, ordered[static_cast<size_t>(i)]); });
  clear_context(a);
  // The last tokens see most: they go first, so that threads end together.
  const auto last = static_cast<int64_t>(blocks.size()) - 1;
  engine.pool.run(last + 1, [&](int64_t i, int) {
    const BlockOfTokens& block = blocks[static_cast<size_t>(last - i)];
    attend_tokens(engine, a, block, ordered[static_cast<size_t>(block.head)]);
  });
}

}  // namespace

void cache_attention(const Engine& engine, const CacheAttention& a) {
  for (const int32_t start : a.start) {
    if (start < 0) throw fail(ErrorKind::kShape, "a row of {} tokens in the cache", start);
  }
  for (const int32_t count : a.count) {
    if (count < 0 || count > a.tokens) {
      throw fail(ErrorKind::kShape, "{} of {} new tokens", count, a.tokens);
    }
  }
  if (a.tokens > kFewRows) return attend_many(engine, a);
  clear_context(a);
  for (int64_t t = 0; t < a.tokens; ++t) attend_one(engine, a, t);
}

}  // namespace mt::kernels
