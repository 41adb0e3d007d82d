#include "serve/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <limits>

#include "base/error.h"
#include "base/random.h"
#include "kernels/kernels.h"
#include "models/gemma3/from_run.h"
#include "nnx/init.h"
#include "serve/quantised_params.h"

namespace mt::serve {
namespace {

using ir::Value;
using models::gemma3::Gemma3Model;
using Values = std::vector<Value>;

constexpr int64_t kSmallestBucket = 16;
constexpr int64_t kMostAhead = 7;  // with the token before, as many rows as kernels::kFewRows

// Where programs can call the CPU's kernels: calls are not split over several devices.
bool is_one_cpu(const models::gemma3::Devices& devices) {
  return devices.client->is_cpu() && devices.partitioner->mesh.device_count() == 1;
}

// The program's length for a piece of a prompt: a power of two, the chunk at most.
int64_t bucket(int64_t tokens, int64_t chunk) {
  int64_t size = kSmallestBucket;
  while (size < tokens) size *= 2;
  return std::min(size, chunk);
}

ir::Type rows_of(DType dtype, int64_t rows) { return {dtype, {rows}}; }

std::string_view name(Choice choice) {
  switch (choice) {
    case Choice::kGreedy: return "greedy";
    case Choice::kSample: return "sample";
    case Choice::kFull: return "full";
  }
  return "";
}

std::vector<nnx::Input> sampling_inputs(Choice choice, int64_t rows) {
  std::vector<nnx::Input> list;
  if (choice == Choice::kGreedy) return list;
  list.push_back({"settings", {DType::kF32, {rows, kSettings}}, {}});
  list.push_back({"keys", {DType::kU32, {rows, 2}}, {}});
  if (choice == Choice::kFull) list.push_back({"top_log_probs", {DType::kS32, {}}, {}});
  return list;
}

void append_sampling(Choice choice, std::vector<Tensor>& to, std::span<const Sampling> rows,
                     std::span<const int64_t> positions) {
  if (choice == Choice::kGreedy) return;
  to.push_back(settings_of(rows));
  to.push_back(keys_of(rows, positions));
  if (choice != Choice::kFull) return;
  int32_t most = 0;
  for (const Sampling& s : rows) most = std::max(most, s.top_log_probs);
  to.push_back(Tensor::of<int32_t>(DType::kS32, {}, std::vector{most}));
}

// What programs of one row and Choice::kFull get besides.
std::vector<nnx::Input> seen_inputs(int64_t vocab_size) {
  return {{"seen", {DType::kS32, {1, vocab_size}}, {}},
          {"bias", {DType::kF32, {1, vocab_size}}, {}}};
}

constexpr int64_t kScoredAtOnce = 16;  // rows of logits; products with blocks take so many directly

// log p of target [1, T] under the logits of hidden [1, T, D], piece by piece: f32 [T]; with
// `most`, then the most likely tokens and their log-probabilities, [T, kMostTopLogProbs].
Values log_probs_of(const Gemma3Model& model, Value hidden_btd, Value targets_bt,
                    const Value* most) {
  const int64_t tokens = hidden_btd.dim(1), width = hidden_btd.dim(2);
  const int64_t pieces = (tokens + kScoredAtOnce - 1) / kScoredAtOnce;
  const int64_t rest = pieces * kScoredAtOnce - tokens;
  const Value hidden = ir::reshape(ir::pad(hidden_btd, 0, {0, 0, 0}, {0, rest, 0}),
                                   {pieces, 1, kScoredAtOnce, width});
  const Value targets =
      ir::reshape(ir::pad(targets_bt, 0, {0, 0}, {0, rest}), {pieces, kScoredAtOnce});
  const Values found = ir::scan({}, {hidden, targets}, {.length = pieces}, [&](const Values& s) {
    const Value logits = ir::squeeze(model.token_embedder.attend(s[0]), 0);
    Values out{log_prob_of(logits, s[1])};
    if (most != nullptr) {
      const Alternatives top = most_likely(logits, s[0].graph->import(*most));
      out.insert(out.end(), {top.token_bn, top.log_prob_bn});
    }
    return out;
  });
  Values out;
  for (const Value& v : found) {
    Shape shape(v.shape().begin() + 1, v.shape().end());
    shape[0] = pieces * kScoredAtOnce;
    out.push_back(ir::slice_axis(ir::reshape(v, shape), 0, 0, tokens));
  }
  return out;
}

void append(std::vector<nnx::Input>& to, std::vector<nnx::Input> more) {
  for (nnx::Input& i : more) to.push_back(std::move(i));
}

Tensor integers(const Shape& shape, const std::vector<int32_t>& values) {
  return Tensor::of<int32_t>(DType::kS32, shape, values);
}

}  // namespace

Engine::Engine(const config::Config& config, const models::gemma3::Devices& devices,
               const EngineOptions& options)
    : config_(config), devices_(devices), options_(options) {
  if (options.slots < 1 || options.max_length < 2 || options.chunk < 1) {
    throw fail(ErrorKind::kConfig,
               "decoding needs at least 1 slot of 2 tokens and chunks of 1: found {} of {}, {}",
               options.slots, options.max_length, options.chunk);
  }
  if (options.ahead < 0 || options.ahead > kMostAhead || (options.ahead > 0 && options.slots > 1)) {
    throw fail(ErrorKind::kConfig, "guesses of {} tokens with {} slots: expected 0 to {} of 1 slot",
               options.ahead, options.slots, kMostAhead);
  }
  if (!is_one_cpu(devices)) options_.ahead = 0;
  check_quantization(config, is_one_cpu(devices));
  if (is_one_cpu(devices)) kernels::register_cpu_handlers(*devices.client);
  generation_ = make_model(options.slots);
  prefill_ = make_model(1);
  slots_.resize(static_cast<size_t>(options.slots));
}

// Not scanned: a scan would copy every cache from its stack and back at each step.
std::unique_ptr<Gemma3Model> Engine::make_model(int64_t rows) const {
  models::gemma3::ModelOptions o = models::gemma3::options_from(config_);
  o.scan_layers = false;
  o.dropout_rate = 0;
  o.record_internal_nn_metrics = false;
  // Room to guess ahead whether or not that is used: a ring's length decides in which order a sum
  // is taken, so the last bits would differ.
  const bool kernels = is_one_cpu(devices_);
  const int64_t ahead = kernels && options_.slots == 1 ? kMostAhead : 0;
  o.cache = {rows, options_.max_length, options_.cache_dtype, ahead, kernels};
  auto model =
      std::make_unique<Gemma3Model>(models::gemma3::sizes_from(config_), o, devices_.partitioner);
  for (const auto& [path, v] : nnx::variables(*model)) {
    nnx::array_type(path, *v, *devices_.partitioner);  // refuses what the mesh doesn't divide
  }
  return model;
}

std::vector<nnx::Variable*> Engine::caches_of(Model& model) const {
  std::vector<nnx::Variable*> caches;
  for (const auto& [path, v] : nnx::variables(model)) {
    if (v->kind == nnx::VariableKind::kCache) caches.push_back(v);
  }
  return caches;
}

// {tokens, log-probabilities} after last hidden states [B, 1, D], then {alternatives' tokens, their
// log-probabilities} of kFull, then the logits if they are kept.
std::vector<nnx::Output> Engine::choose(Gemma3Model& model, Value last_b1d, Choice choice,
                                        std::span<const Value> in, Value seen_bv,
                                        Value bias_bv) const {
  const Value logits = ir::squeeze(model.token_embedder.attend(last_b1d), 1);
  const bool full = choice == Choice::kFull;
  Chosen chosen;
  if (choice == Choice::kGreedy) {
    chosen = greedy(logits, is_one_cpu(devices_));
  } else {
    const Value adjusted = full ? adjust(logits, in[0], seen_bv, bias_bv) : logits;
    chosen = sample(logits, adjusted, in[0], in[1], is_one_cpu(devices_));
  }
  std::vector<nnx::Output> out{chosen.token_b, chosen.log_prob_b};
  if (full) {
    const Alternatives top = most_likely(logits, in[2]);
    out.insert(out.end(), {top.token_bn, top.log_prob_bn});
  }
  if (options_.keep_logits) out.emplace_back(logits);
  return out;
}

void Engine::give_empty_caches(Model& model) const {
  nnx::initialize(model, devices_.client, *devices_.partitioner, 0, nnx::default_logical_name,
                  devices_.cache.get());
}

void Engine::open_params() {
  source_ = open_params_of(*generation_, config_);
  opened_ = true;
  // Only the kernels give a row the same bits alone and among others.
  if (source_ == nullptr) options_.ahead = 0;
  if (source_ != nullptr && is_one_cpu(devices_)) {
    models::gemma3::StoredOptions stored;
    stored.blocks = !config_.flag("dequantize_weights") || !config_.text("quantization").empty();
    if (kernels::multiplies_many_rows()) {
      stored.most_rows = std::numeric_limits<int64_t>::max();
      stored.pack = true;
    }
    models::gemma3::keep_stored(*generation_, *source_, stored);
    models::gemma3::keep_stored(*prefill_, *source_, stored);
  }
}

void Engine::load_params() {
  if (!opened_) open_params();
  models::gemma3::give_parameters(*generation_, source_.get(), config_, devices_);
  source_ = nullptr;
  give_empty_caches(*generation_);
  const auto from = nnx::variables(*generation_), to = nnx::variables(*prefill_);
  for (size_t i = 0; i < from.size(); ++i) {
    MT_CHECK(from[i].path == to[i].path);
    if (from[i].variable->kind == nnx::VariableKind::kCache) continue;
    to[i].variable->array = from[i].variable->array;
  }
  for (const auto& [path, v] : from) v->array->await();
}

int64_t Engine::cache_bytes_per_slot() const {
  int64_t bytes = 0;
  for (const nnx::Variable* v : caches_of(*prefill_)) {
    bytes += element_count(v->type.shape) * byte_size(v->type.dtype);
  }
  return bytes;
}

int64_t Engine::bytes_on_device() const {
  int64_t bytes = 0;
  for (const auto& [path, v] : nnx::variables(*generation_)) bytes += v->array->bytes_on_device(0);
  return bytes;
}

size_t Engine::checked(int64_t slot) const {
  if (slot >= 0 && slot < options_.slots) return static_cast<size_t>(slot);
  throw fail(ErrorKind::kConfig, "slot {} of {}", slot, options_.slots);
}

int64_t Engine::length(int64_t slot) const { return slots_[checked(slot)].length; }

const std::vector<int32_t>& Engine::tokens(int64_t slot) const {
  return slots_[checked(slot)].tokens;
}

void Engine::force(int64_t slot, int32_t token) {
  if (token < 0 || token >= sizes().vocab_size) {
    throw fail(ErrorKind::kConfig, "token {}: the vocabulary has {}", token, sizes().vocab_size);
  }
  slots_[checked(slot)].last = token;
}

void Engine::release(int64_t slot) { slots_[checked(slot)] = {}; }

// A program that failed has given its arrays away.
void Engine::clear() {
  for (Slot& slot : slots_) slot = {};
  for (Model* model : {generation_.get(), prefill_.get()}) {
    for (nnx::Variable* v : caches_of(*model)) v->array = nullptr;
  }
  give_empty_caches(*generation_);
  if (seen_ == nullptr) return;
  seen_->seen.array = seen_->bias.array = nullptr;
  nnx::initialize(*seen_, devices_.client, *devices_.partitioner, 0, nnx::default_logical_name,
                  devices_.cache.get());
}

nnx::Compiled& Engine::program(const std::string& key, const std::vector<nnx::Module*>& modules,
                               const std::vector<nnx::Input>& inputs, const nnx::Function& fn) {
  {
    const std::lock_guard<std::mutex> lock(programs_mutex_);
    if (const auto it = programs_.find(key); it != programs_.end()) return it->second;
  }
  auto compiled = nnx::jit("jit_" + key, devices_.client, modules, inputs, *devices_.partitioner,
                           fn, devices_.cache.get());
  const std::lock_guard<std::mutex> lock(programs_mutex_);
  return programs_.emplace(key, std::move(compiled)).first->second;
}

nnx::Compiled& Engine::prefill_program(const PrefillKind& kind) {
  const int64_t tokens = kind.tokens;
  const std::string key =
      fmt::format("prefill_{}_{}{}", tokens, kind.chooses ? name(kind.choice) : "fill",
                  kind.lists    ? "_listed"
                  : kind.scores ? "_scored"
                                : "");
  std::vector<nnx::Input> inputs{{"tokens", {DType::kS32, {1, tokens}}, {}},
                                 {"start", rows_of(DType::kS32, 1), {}},
                                 {"count", rows_of(DType::kS32, 1), {}}};
  const size_t own = inputs.size();
  if (kind.chooses) append(inputs, sampling_inputs(kind.choice, 1));
  const size_t seen = inputs.size();
  const bool full = kind.chooses && kind.choice == Choice::kFull;
  if (full) append(inputs, seen_inputs(sizes().vocab_size));
  if (kind.scores) inputs.push_back({"targets", {DType::kS32, {1, tokens}}, {}});
  if (kind.lists) inputs.push_back({"most", {DType::kS32, {}}, {}});
  Model& model = *prefill_;
  return program(key, {&model}, inputs, [&](ir::Graph& g, const Values& in) {
    const Value hidden = model.hidden_with_cache(in[0], {in[1], in[2], tokens});
    std::vector<nnx::Output> out;
    if (kind.chooses) {
      const Value zero = ir::full(g, DType::kS32, {}, 0);
      const Value row = ir::reshape(in[2] - 1.0, {});
      const Value last = ir::dynamic_slice(hidden, {zero, row, zero}, {1, 1, hidden.dim(2)});
      out = choose(model, last, kind.choice, std::span(in).subspan(own), full ? in[seen] : Value{},
                   full ? in[seen + 1] : Value{});
    }
    if (!kind.scores) return out;
    const Value targets = in[in.size() - (kind.lists ? 2 : 1)];
    const Values scores = log_probs_of(model, hidden, targets, kind.lists ? &in.back() : nullptr);
    out.insert(out.begin(), scores.begin(), scores.end());
    return out;
  });
}

nnx::Compiled& Engine::generate_program(Choice choice) {
  const int64_t rows = options_.slots;
  std::vector<nnx::Input> inputs{{"tokens", {DType::kS32, {rows, 1}}, {}},
                                 {"start", rows_of(DType::kS32, rows), {}}};
  const size_t own = inputs.size();
  append(inputs, sampling_inputs(choice, rows));
  Model& model = *generation_;
  const bool full = choice == Choice::kFull;
  std::vector<nnx::Module*> modules{&model};
  if (full) modules.push_back(&seen_tokens());
  return program(fmt::format("generate_{}", name(choice)), modules, inputs,
                 [&](ir::Graph& g, const Values& in) {
                   const Value one = ir::full(g, DType::kS32, {rows}, 1);
                   const Value hidden = model.hidden_with_cache(in[0], {in[1], one, 1});
                   if (full) seen_->seen.value = note(seen_->seen.value, ir::squeeze(in[0], 1));
                   return choose(model, hidden, choice, std::span(in).subspan(own),
                                 full ? seen_->seen.value : Value{},
                                 full ? seen_->bias.value : Value{});
                 });
}

nnx::Compiled& Engine::ahead_program(Choice choice) {
  const int64_t tokens = options_.ahead + 1;
  std::vector<nnx::Input> inputs{{"tokens", {DType::kS32, {1, tokens}}, {}},
                                 {"start", rows_of(DType::kS32, 1), {}},
                                 {"count", rows_of(DType::kS32, 1), {}}};
  const size_t own = inputs.size();
  append(inputs, sampling_inputs(choice, tokens));
  Model& model = *generation_;
  return program(fmt::format("ahead_{}_{}", tokens, name(choice)), {&model}, inputs,
                 [&](ir::Graph&, const Values& in) {
                   const Value hidden = model.hidden_with_cache(in[0], {in[1], in[2], tokens});
                   const Value rows = ir::reshape(hidden, {tokens, 1, hidden.dim(2)});
                   return choose(model, rows, choice, std::span(in).subspan(own), {}, {});
                 });
}

// A slot's caches from those of one row, or the other way round.
nnx::Compiled& Engine::insert_program() {
  return program("insert", {generation_.get(), prefill_.get()}, {{"slot", {DType::kS32, {}}, {}}},
                 [&](ir::Graph& g, const Values& in) -> std::vector<nnx::Output> {
                   const auto to = caches_of(*generation_), from = caches_of(*prefill_);
                   const Value zero = ir::full(g, DType::kS32, {}, 0);
                   for (size_t i = 0; i < to.size(); ++i) {
                     to[i]->value = ir::dynamic_update_slice(to[i]->value, from[i]->value,
                                                             {in[0], zero, zero, zero});
                   }
                   return {};
                 });
}

nnx::Compiled& Engine::extract_program() {
  return program("extract", {generation_.get(), prefill_.get()}, {{"slot", {DType::kS32, {}}, {}}},
                 [&](ir::Graph& g, const Values& in) -> std::vector<nnx::Output> {
                   const auto from = caches_of(*generation_), to = caches_of(*prefill_);
                   const Value zero = ir::full(g, DType::kS32, {}, 0);
                   for (size_t i = 0; i < to.size(); ++i) {
                     to[i]->value = ir::dynamic_slice(from[i]->value, {in[0], zero, zero, zero},
                                                      to[i]->type.shape);
                   }
                   return {};
                 });
}

SeenTokens& Engine::seen_tokens() {
  if (seen_ == nullptr) {
    seen_ = std::make_unique<SeenTokens>(options_.slots, sizes().vocab_size);
    nnx::initialize(*seen_, devices_.client, *devices_.partitioner, 0, nnx::default_logical_name,
                    devices_.cache.get());
  }
  return *seen_;
}

// Notes for later steps what the row has seen. Rows without kAdjusts look at none of it.
void Engine::remember(const Prefix& prefix, int64_t slot) {
  if (!adjusts_logits(prefix.sampling)) return;
  std::vector<nnx::Input> inputs{{"slot", {DType::kS32, {}}, {}}};
  append(inputs, seen_inputs(sizes().vocab_size));
  SeenTokens& state = seen_tokens();
  program(
      "remember", {&state}, inputs,
      [&](ir::Graph& g, const Values& in) -> std::vector<nnx::Output> {
        const Values at{in[0], ir::full(g, DType::kS32, {}, 0)};
        state.seen.value = ir::dynamic_update_slice(state.seen.value, in[1], at);
        state.bias.value = ir::dynamic_update_slice(state.bias.value, in[2], at);
        return {};
      })({integers({}, {static_cast<int32_t>(slot)}), seen_in(prefix.tokens, sizes().vocab_size),
          bias_of(prefix.sampling, sizes().vocab_size)});
}

void Engine::compile(int64_t prompt_tokens, const Sampling& sampling,
                     const PrefillOptions& options) {
  const Choice choice = choice_for(sampling);
  const int64_t whole = prompt_tokens / options_.chunk, rest = prompt_tokens % options_.chunk;
  // The two models share nothing that tracing touches.
  auto generation = std::async(std::launch::async, [&] { generate_program(choice); });
  if (whole > 1 || (whole == 1 && rest > 0)) {
    prefill_program({.tokens = options_.chunk,
                     .scores = options.log_probs,
                     .lists = options.top_log_probs > 0});
  }
  prefill_program({.tokens = bucket(rest > 0 ? rest : options_.chunk, options_.chunk),
                   .chooses = true,
                   .scores = options.log_probs,
                   .lists = options.top_log_probs > 0,
                   .choice = choice});
  generation.get();
  if (options_.slots > 1) insert_program();
}

void Engine::check_prompt(std::span<const int32_t> tokens, int64_t start,
                          const Sampling& sampling) const {
  const auto count = static_cast<int64_t>(tokens.size());
  if (count < 1 || start + count >= options_.max_length) {
    throw fail(ErrorKind::kConfig, "a prompt of {} tokens: expected 1 to {}", count,
               options_.max_length - 1 - start);
  }
  for (const int32_t id : tokens) {
    if (id < 0 || id >= sizes().vocab_size) {
      throw fail(ErrorKind::kConfig, "token {} in the prompt: the vocabulary has {}", id,
                 sizes().vocab_size);
    }
  }
  check(sampling, sizes().vocab_size);
}

// `following`: the tokens behind these, if there are any; without them one is chosen.
void Engine::run_chunk(std::span<const int32_t> tokens, std::span<const int32_t> following,
                       const PrefillOptions& options, Prefix& prefix) {
  const auto count = static_cast<int64_t>(tokens.size());
  const int64_t size = bucket(count, options_.chunk), start = prefix.length;
  const int64_t position = start + count;
  const bool last = following.empty();
  const PrefillKind kind{size, last, options.log_probs,
                         options.log_probs && options.top_log_probs > 0,
                         choice_for(prefix.sampling)};
  const auto padded = [&](std::span<const int32_t> values) {
    std::vector<int32_t> row(values.begin(), values.end());
    row.resize(static_cast<size_t>(size), 0);
    return integers({1, size}, row);
  };
  std::vector<Tensor> inputs{padded(tokens), integers({1}, {static_cast<int32_t>(start)}),
                             integers({1}, {static_cast<int32_t>(count)})};
  if (last) {
    append_sampling(kind.choice, inputs, {&prefix.sampling, 1}, {&position, 1});
    if (kind.choice == Choice::kFull) {
      inputs.push_back(seen_in(prefix.tokens, sizes().vocab_size));
      inputs.push_back(bias_of(prefix.sampling, sizes().vocab_size));
    }
  }
  if (kind.scores) {
    std::vector<int32_t> targets(tokens.begin() + 1, tokens.end());
    if (!last) targets.push_back(following.front());
    inputs.push_back(padded(targets));
  }
  if (kind.lists) inputs.push_back(integers({}, {options.top_log_probs}));
  std::vector<pjrt::Array> results = prefill_program(kind)(inputs);
  prefix.length = position;
  if (kind.scores) {
    take_scores(results, static_cast<size_t>(last ? count - 1 : count), options, prefix);
  }
  if (!last) return;
  if (options_.keep_logits) prefix.logits = results.back().to_host();
  prefix.first = tokens_of(kind.choice, results, {&prefix.sampling, 1})[0];
  check_finite(prefix.first, position);
}

// The first results, of the first `count` rows.
void Engine::take_scores(std::vector<pjrt::Array>& results, size_t count,
                         const PrefillOptions& options, Prefix& prefix) const {
  const Tensor found = results[0].to_host();
  const auto log_probs = found.data<float>().first(count);
  prefix.log_probs.insert(prefix.log_probs.end(), log_probs.begin(), log_probs.end());
  if (options.top_log_probs > 0) {
    const Tensor ids = results[1].to_host(), values = results[2].to_host();
    for (size_t i = 0; i < count; ++i) {
      std::vector<Alternative>& row = prefix.top.emplace_back();
      for (size_t n = 0; n < static_cast<size_t>(options.top_log_probs); ++n) {
        const size_t at = i * kMostTopLogProbs + n;
        row.push_back({ids.data<int32_t>()[at], values.data<float>()[at]});
      }
    }
  }
  results.erase(results.begin(), results.begin() + (options.top_log_probs > 0 ? 3 : 1));
}

Filling Engine::start_filling(std::span<const int32_t> tokens, Prefix prefix,
                              const PrefillOptions& options) {
  prefix.tokens.insert(prefix.tokens.end(), tokens.begin(), tokens.end());
  if (options.log_probs) prefix.log_probs.push_back(std::numeric_limits<float>::quiet_NaN());
  if (options.log_probs && options.top_log_probs > 0) prefix.top.emplace_back();
  for (nnx::Variable* v : caches_of(*prefill_)) prefix.caches.push_back(std::move(v->array));
  return {std::move(prefix), {tokens.begin(), tokens.end()}, 0, options};
}

bool Engine::advance(Filling& filling) {
  const auto caches = caches_of(*prefill_);
  Prefix& prefix = filling.prefix;
  for (size_t i = 0; i < caches.size(); ++i) caches[i]->array = std::move(prefix.caches[i]);
  const auto left = std::span<const int32_t>(filling.tokens).subspan(filling.done);
  const size_t size = std::min(static_cast<size_t>(options_.chunk), left.size());
  run_chunk(left.first(size), left.subspan(size), filling.options, prefix);
  filling.done += size;
  for (size_t i = 0; i < caches.size(); ++i) prefix.caches[i] = std::move(caches[i]->array);
  return filling.done == filling.tokens.size();
}

Prefix Engine::finish(Filling filling) {
  while (!advance(filling)) {
  }
  return std::move(filling.prefix);
}

Filling Engine::begin(std::span<const int32_t> tokens, const Sampling& sampling,
                      const PrefillOptions& options) {
  check_prompt(tokens, 0, sampling);
  give_empty_caches(*prefill_);
  Prefix prefix;
  prefix.sampling = sampling;
  return start_filling(tokens, std::move(prefix), options);
}

Prefix Engine::prefill(std::span<const int32_t> tokens, const Sampling& sampling,
                       const PrefillOptions& options) {
  return finish(begin(tokens, sampling, options));
}

Prefix Engine::extend(int64_t slot, std::span<const int32_t> tokens, const Sampling& sampling,
                      const PrefillOptions& options) {
  const Slot& s = slots_[checked(slot)];
  check_prompt(tokens, s.length, sampling);
  give_empty_caches(*prefill_);
  extract_program()({integers({}, {static_cast<int32_t>(slot)})});
  Prefix prefix;
  prefix.sampling = sampling;
  prefix.tokens = s.tokens;
  prefix.length = s.length;
  return finish(start_filling(tokens, std::move(prefix), options));
}

void Engine::insert(Prefix prefix, int64_t slot) {
  Slot& s = slots_[checked(slot)];
  const auto caches = caches_of(*prefill_);
  MT_CHECK(prefix.caches.size() == caches.size());
  remember(prefix, slot);
  if (options_.slots == 1) {  // the prompt's caches are the slot's
    const auto own = caches_of(*generation_);
    for (size_t i = 0; i < own.size(); ++i) own[i]->array = std::move(prefix.caches[i]);
  } else {
    for (size_t i = 0; i < caches.size(); ++i) caches[i]->array = std::move(prefix.caches[i]);
    insert_program()({integers({}, {static_cast<int32_t>(slot)})});
    for (nnx::Variable* v : caches) v->array = nullptr;
  }
  s = {prefix.length, prefix.first.id, std::move(prefix.sampling), std::move(prefix.tokens)};
}

Error Engine::not_finite(int64_t position) const {
  return fail(ErrorKind::kIo,
              "the logits after {} tokens are not finite: the weights of load_parameters_path='{}' "
              "hold a NaN or infinity, or dtype={} is too narrow for them",
              position, config_.text("load_parameters_path"), config_.text("dtype"));
}

void Engine::check_finite(const Token& token, int64_t position) const {
  if (std::isnan(token.log_prob)) throw not_finite(position);
}

std::vector<Token> Engine::tokens_of(Choice choice, const std::vector<pjrt::Array>& results,
                                     std::span<const Sampling> rows) const {
  const Tensor ids = results[0].to_host(), log_probs = results[1].to_host();
  std::vector<Token> out;
  for (size_t i = 0; i < rows.size(); ++i) {
    out.push_back({ids.data<int32_t>()[i], log_probs.data<float>()[i], {}});
  }
  if (choice != Choice::kFull) return out;
  const Tensor top_ids = results[2].to_host(), top_log_probs = results[3].to_host();
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t n = 0; n < static_cast<size_t>(rows[i].top_log_probs); ++n) {
      const size_t at = i * kMostTopLogProbs + n;
      out[i].top.push_back({top_ids.data<int32_t>()[at], top_log_probs.data<float>()[at]});
    }
  }
  return out;
}

std::vector<Token> Engine::generate() {
  std::vector<Token> out = step();
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].length > 0) check_finite(out[i], slots_[i].length + 1);
  }
  return out;
}

std::vector<Token> Engine::step() {
  Choice choice = Choice::kGreedy;
  std::vector<int32_t> tokens, starts;
  std::vector<Sampling> sampling;
  std::vector<int64_t> positions;
  for (const Slot& s : slots_) {
    if (s.length > 0) choice = std::max(choice, choice_for(s.sampling));
    tokens.push_back(s.last);
    starts.push_back(static_cast<int32_t>(s.length));
    sampling.push_back(s.sampling);
    positions.push_back(s.length + 1);
  }
  std::vector<Tensor> inputs{integers({options_.slots, 1}, tokens),
                             integers({options_.slots}, starts)};
  append_sampling(choice, inputs, sampling, positions);
  const std::vector<pjrt::Array> results = generate_program(choice)(inputs);
  std::vector<Token> out = tokens_of(choice, results, sampling);
  if (options_.keep_logits) logits_ = results.back().to_host();
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].length > 0 && !std::isnan(out[i].log_prob)) take(slots_[i], out[i]);
  }
  return out;
}

// The slot's last token has been run, and this finite one was chosen after it.
void Engine::take(Slot& slot, const Token& token) {
  if (slot.length + 1 >= options_.max_length) return;
  ++slot.length;
  slot.tokens.push_back(slot.last);
  slot.last = token.id;
}

std::vector<Token> Engine::generate_ahead(std::span<const int32_t> guess) {
  Slot& slot = slots_[0];
  const Choice choice = choice_for(slot.sampling);
  const auto size = std::ssize(guess);
  if (size < 1 || size > options_.ahead || slot.length == 0 ||
      slot.length + size + 1 >= options_.max_length || choice == Choice::kFull) {
    throw fail(
        ErrorKind::kConfig,
        "a guess of {} tokens behind {}: expected 1 to {}, room for them in {}, and settings "
        "without penalties",
        size, slot.length, options_.ahead, options_.max_length);
  }
  std::vector<int32_t> tokens{slot.last};
  tokens.insert(tokens.end(), guess.begin(), guess.end());
  const auto count = static_cast<int32_t>(tokens.size());
  tokens.resize(static_cast<size_t>(options_.ahead + 1), 0);
  const std::vector<Sampling> sampling(tokens.size(), slot.sampling);
  std::vector<int64_t> positions;
  for (size_t i = 0; i < tokens.size(); ++i) {
    positions.push_back(slot.length + 1 + static_cast<int64_t>(i));
  }
  std::vector<Tensor> inputs{integers({1, std::ssize(tokens)}, tokens),
                             integers({1}, {static_cast<int32_t>(slot.length)}),
                             integers({1}, {count})};
  append_sampling(choice, inputs, sampling, positions);
  const std::vector<pjrt::Array> results = ahead_program(choice)(inputs);
  const std::vector<Token> chosen = tokens_of(choice, results, sampling);
  std::vector<Token> out;
  do {
    out.push_back(chosen[out.size()]);
    check_finite(out.back(), slot.length + 1);
    take(slot, out.back());
  } while (std::ssize(out) <= size && guess[out.size() - 1] == out.back().id);
  return out;
}

}  // namespace mt::serve
