#include "serve/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "kernels/kernels.h"
#include "models/gemma3/from_run.h"
#include "nnx/init.h"

namespace mt::serve {
namespace {

using ir::Value;
using models::gemma3::Gemma3Model;
using Values = std::vector<Value>;

constexpr int64_t kSmallestBucket = 16;

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
  return list;
}

void append_sampling(Choice choice, std::vector<Tensor>& to, std::span<const Sampling> rows,
                     std::span<const int64_t> positions) {
  if (choice == Choice::kGreedy) return;
  to.push_back(settings_of(rows));
  to.push_back(keys_of(rows, positions));
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
  o.cache = {rows, options_.max_length, options_.cache_dtype};
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

// {tokens, log-probabilities} after last hidden states [B, 1, D], and the logits if they are kept.
std::vector<nnx::Output> Engine::choose(Gemma3Model& model, Value last_b1d, const Values& in,
                                        size_t sampling_at, Choice choice) const {
  const Value logits = ir::squeeze(model.token_embedder.attend(last_b1d), 1);
  const size_t s = sampling_at;
  const Chosen chosen =
      choice == Choice::kGreedy ? greedy(logits) : sample(logits, logits, in[s], in[s + 1]);
  std::vector<nnx::Output> out{chosen.token_b, chosen.log_prob_b};
  if (options_.keep_logits) out.emplace_back(logits);
  return out;
}

void Engine::give_empty_caches(Model& model) const {
  nnx::initialize(model, devices_.client, *devices_.partitioner, 0, nnx::default_logical_name,
                  devices_.cache.get());
}

void Engine::load_params() {
  const auto source = models::gemma3::open_weights(*generation_, config_);
  const bool one_cpu = devices_.client->is_cpu() && devices_.partitioner->mesh.device_count() == 1;
  if (source != nullptr && one_cpu && !config_.flag("dequantize_weights")) {
    kernels::register_cpu_handlers(*devices_.client);
    models::gemma3::keep_blocks(*generation_, *source);
    models::gemma3::keep_blocks(*prefill_, *source);
  }
  models::gemma3::give_parameters(*generation_, source.get(), config_, devices_);
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

int64_t Engine::length(int64_t slot) const { return slots_.at(static_cast<size_t>(slot)).length; }

void Engine::force(int64_t slot, int32_t token) {
  if (token < 0 || token >= sizes().vocab_size) {
    throw fail(ErrorKind::kConfig, "token {}: the vocabulary has {}", token, sizes().vocab_size);
  }
  slots_.at(static_cast<size_t>(slot)).last = token;
}

void Engine::release(int64_t slot) { slots_.at(static_cast<size_t>(slot)) = {}; }

nnx::Compiled& Engine::prefill_program(int64_t tokens, bool chooses, Choice choice) {
  const std::string key = fmt::format("prefill_{}_{}", tokens, chooses ? name(choice) : "fill");
  if (const auto it = programs_.find(key); it != programs_.end()) return it->second;
  std::vector<nnx::Input> inputs{{"tokens", {DType::kS32, {1, tokens}}, {}},
                                 {"start", rows_of(DType::kS32, 1), {}},
                                 {"count", rows_of(DType::kS32, 1), {}}};
  if (chooses) {
    for (nnx::Input& i : sampling_inputs(choice, 1)) inputs.push_back(std::move(i));
  }
  Model& model = *prefill_;
  auto fn = [&](ir::Graph& g, const Values& in) -> std::vector<nnx::Output> {
    const Value hidden = model.hidden_with_cache(in[0], {in[1], in[2], tokens});
    if (!chooses) return {};
    const Value zero = ir::full(g, DType::kS32, {}, 0);
    const Value row = ir::reshape(in[2] - 1.0, {});
    const Value last = ir::dynamic_slice(hidden, {zero, row, zero}, {1, 1, hidden.dim(2)});
    return choose(model, last, in, 3, choice);
  };
  return programs_
      .emplace(key, nnx::jit("jit_" + key, devices_.client, {&model}, inputs, *devices_.partitioner,
                             fn, devices_.cache.get()))
      .first->second;
}

nnx::Compiled& Engine::generate_program(Choice choice) {
  const std::string key = fmt::format("generate_{}", name(choice));
  if (const auto it = programs_.find(key); it != programs_.end()) return it->second;
  const int64_t rows = options_.slots;
  std::vector<nnx::Input> inputs{{"tokens", {DType::kS32, {rows, 1}}, {}},
                                 {"start", rows_of(DType::kS32, rows), {}}};
  for (nnx::Input& i : sampling_inputs(choice, rows)) inputs.push_back(std::move(i));
  Model& model = *generation_;
  auto fn = [&](ir::Graph& g, const Values& in) -> std::vector<nnx::Output> {
    const Value one = ir::full(g, DType::kS32, {rows}, 1);
    return choose(model, model.hidden_with_cache(in[0], {in[1], one, 1}), in, 2, choice);
  };
  return programs_
      .emplace(key, nnx::jit("jit_" + key, devices_.client, {&model}, inputs, *devices_.partitioner,
                             fn, devices_.cache.get()))
      .first->second;
}

nnx::Compiled& Engine::insert_program() {
  const std::string key = "insert";
  if (const auto it = programs_.find(key); it != programs_.end()) return it->second;
  auto fn = [&](ir::Graph& g, const Values& in) -> std::vector<nnx::Output> {
    const auto to = caches_of(*generation_), from = caches_of(*prefill_);
    const Value zero = ir::full(g, DType::kS32, {}, 0);
    for (size_t i = 0; i < to.size(); ++i) {
      to[i]->value =
          ir::dynamic_update_slice(to[i]->value, from[i]->value, {in[0], zero, zero, zero});
    }
    return {};
  };
  return programs_
      .emplace(key, nnx::jit("jit_insert", devices_.client, {generation_.get(), prefill_.get()},
                             {{"slot", {DType::kS32, {}}, {}}}, *devices_.partitioner, fn,
                             devices_.cache.get()))
      .first->second;
}

void Engine::compile(int64_t prompt_tokens, const Sampling& sampling) {
  const Choice choice = choice_for(sampling);
  const int64_t whole = prompt_tokens / options_.chunk, rest = prompt_tokens % options_.chunk;
  if (whole > 1 || (whole == 1 && rest > 0)) prefill_program(options_.chunk, false, choice);
  prefill_program(bucket(rest > 0 ? rest : options_.chunk, options_.chunk), true, choice);
  insert_program();
  generate_program(choice);
}

void Engine::run_chunk(std::span<const int32_t> tokens, int64_t start, bool last, Prefix& prefix) {
  const auto count = static_cast<int64_t>(tokens.size());
  const int64_t size = bucket(count, options_.chunk);
  const Choice choice = choice_for(prefix.sampling);
  nnx::Compiled& program = prefill_program(size, last, choice);
  std::vector<int32_t> padded(tokens.begin(), tokens.end());
  padded.resize(static_cast<size_t>(size), 0);
  std::vector<Tensor> inputs{integers({1, size}, padded),
                             integers({1}, {static_cast<int32_t>(start)}),
                             integers({1}, {static_cast<int32_t>(count)})};
  const int64_t position = start + count;
  if (last) append_sampling(choice, inputs, {&prefix.sampling, 1}, {&position, 1});
  const std::vector<pjrt::Array> results = program(inputs);
  if (!last) return;
  if (options_.keep_logits) prefix.logits = results[2].to_host();
  prefix.first = tokens_of(results, {&prefix.sampling, 1})[0];
  check_finite(prefix.first, position);
}

Prefix Engine::prefill(std::span<const int32_t> tokens, const Sampling& sampling) {
  const auto count = static_cast<int64_t>(tokens.size());
  if (count < 1 || count >= options_.max_length) {
    throw fail(ErrorKind::kConfig, "a prompt of {} tokens: expected 1 to {}", count,
               options_.max_length - 1);
  }
  for (const int32_t id : tokens) {
    if (id < 0 || id >= sizes().vocab_size) {
      throw fail(ErrorKind::kConfig, "token {} in the prompt: the vocabulary has {}", id,
                 sizes().vocab_size);
    }
  }
  check(sampling, sizes().vocab_size);
  give_empty_caches(*prefill_);
  Prefix prefix;
  prefix.length = count;
  prefix.sampling = sampling;
  for (int64_t at = 0; at < count; at += options_.chunk) {
    const int64_t size = std::min(options_.chunk, count - at);
    run_chunk(tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(size)), at,
              at + size == count, prefix);
  }
  for (nnx::Variable* v : caches_of(*prefill_)) prefix.caches.push_back(std::move(v->array));
  return prefix;
}

void Engine::insert(Prefix prefix, int64_t slot) {
  if (slot < 0 || slot >= options_.slots) {
    throw fail(ErrorKind::kConfig, "slot {} of {}", slot, options_.slots);
  }
  const auto caches = caches_of(*prefill_);
  MT_CHECK(prefix.caches.size() == caches.size());
  for (size_t i = 0; i < caches.size(); ++i) caches[i]->array = std::move(prefix.caches[i]);
  insert_program()({integers({}, {static_cast<int32_t>(slot)})});
  for (nnx::Variable* v : caches) v->array = nullptr;
  slots_[static_cast<size_t>(slot)] = {prefix.length, prefix.first.id, prefix.sampling};
}

void Engine::check_finite(const Token& token, int64_t position) const {
  if (!std::isnan(token.log_prob)) return;
  throw fail(ErrorKind::kIo,
             "the logits after {} tokens are not finite: the weights of load_parameters_path='{}' "
             "hold a NaN or infinity, or dtype={} is too narrow for them",
             position, config_.text("load_parameters_path"), config_.text("dtype"));
}

std::vector<Token> Engine::tokens_of(const std::vector<pjrt::Array>& results,
                                     std::span<const Sampling> rows) const {
  const Tensor ids = results[0].to_host(), log_probs = results[1].to_host();
  std::vector<Token> out;
  for (size_t i = 0; i < rows.size(); ++i) {
    out.push_back({ids.data<int32_t>()[i], log_probs.data<float>()[i], {}});
  }
  return out;
}

std::vector<Token> Engine::generate() {
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
  std::vector<Token> out = tokens_of(results, sampling);
  if (options_.keep_logits) logits_ = results[2].to_host();
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& s = slots_[i];
    if (s.length == 0) continue;
    check_finite(out[i], s.length + 1);
    if (s.length + 1 >= options_.max_length) continue;
    ++s.length;
    s.last = out[i].id;
  }
  return out;
}

}  // namespace mt::serve
