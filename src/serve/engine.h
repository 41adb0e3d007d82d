// The engine that decoding and serving stand on (JetStream's: prefill, insert, generate). A fixed
// number of slots, each with its own caches; programs of fixed shapes, compiled once. A row's
// result does not depend on its neighbours.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/config.h"
#include "models/gemma3/session.h"
#include "nnx/jit.h"
#include "serve/sampler.h"
#include "serve/seen_tokens.h"
#include "serve/slot_engine.h"

namespace mt::serve {

struct EngineOptions {
  int64_t slots = 1;
  int64_t max_length = 0;  // prompt and generated tokens of a slot
  int64_t chunk = 512;     // a longer prompt goes through prefill in pieces of this many tokens
  DType cache_dtype = DType::kBF16;
  int64_t ahead = 0;  // tokens that generate_ahead() may guess, up to 7; of one slot on one CPU
  bool keep_logits = false;  // bring every step's logits to the host: scoring, log-probabilities
};

class Engine final : public SlotEngine {
 public:
  // Nothing is compiled or allocated yet. `devices` must outlive the engine.
  Engine(const config::Config& config, const models::gemma3::Devices& devices,
         const EngineOptions& options);

  // Opens load_parameters_path and checks it against the model; throws what is wrong with it.
  void open_params();
  // Reads the weights (or draws random ones) and makes the empty slots. Opens them first if nobody
  // has.
  void load_params();

  // Compiles, or takes from the cache, what a prompt of so many tokens and its generation will run;
  // otherwise the first call of each does. After open_params; may run beside load_params.
  void compile(int64_t prompt_tokens, const Sampling& sampling, const PrefillOptions& options = {});

  // Runs the prompt's 1 to max_length - 1 tokens and chooses the first token. Throws kConfig for a
  // length, token or setting out of range, and kIo (as generate() does) where the weights give no
  // finite logits. `sampling` stays with the row.
  Prefix prefill(std::span<const int32_t> tokens, const Sampling& sampling,
                 const PrefillOptions& options = {});
  // The same for a text that begins with what the slot's caches hold: only these tokens are run.
  // The slot stays as it is; insert() may put the result there or elsewhere. The token that was
  // chosen last is not in the caches yet.
  Prefix extend(int64_t slot, std::span<const int32_t> tokens, const Sampling& sampling,
                const PrefillOptions& options = {});
  Filling begin(std::span<const int32_t> tokens, const Sampling& sampling,
                const PrefillOptions& options) override;
  bool advance(Filling& filling) override;
  void insert(Prefix prefix, int64_t slot) override;
  // The next token of every slot; those of slots that hold nothing, or are full, mean nothing.
  // Throws kIo where a slot's logits are not finite.
  std::vector<Token> generate();
  std::vector<Token> step() override;
  // The next tokens of the only slot: what generate() gives, and what it would give after that as
  // long as the guess of 1 to options().ahead tokens is right; 1 to guess.size() + 1 tokens, to the
  // last bit the same as one by one. The slot has room for the guess, and its settings don't depend
  // on tokens seen (Choice::kFull). Throws kConfig where these don't hold.
  std::vector<Token> generate_ahead(std::span<const int32_t> guess);
  // f32 [slots, V], of what generate() chose last; with keep_logits.
  const Tensor& logits() const { return logits_; }
  // The slot goes on with this token instead of the one that was chosen.
  void force(int64_t slot, int32_t token);
  void release(int64_t slot) override;
  void clear() override;

  int64_t slots() const override { return options_.slots; }
  int64_t max_length() const override { return options_.max_length; }
  int64_t vocab_size() const override { return sizes().vocab_size; }
  int64_t length(int64_t slot) const override;
  const std::vector<int32_t>& tokens(int64_t slot) const;  // these
  int64_t cache_bytes_per_slot() const;
  int64_t bytes_on_device() const;  // of parameters and slots, on the first device
  const EngineOptions& options() const { return options_; }
  const models::gemma3::Gemma3Config& sizes() const { return generation_->config(); }

 private:
  struct Slot {
    int64_t length = 0;
    int32_t last = 0;  // the token to run next
    Sampling sampling;
    std::vector<int32_t> tokens;  // in the caches
  };
  struct PrefillKind {
    int64_t tokens = 0;
    bool chooses = false;  // a token after the last one
    bool scores = false;   // the tokens' log-probabilities
    bool lists = false;    // and the most likely ones
    Choice choice = Choice::kGreedy;
  };
  using Model = models::gemma3::Gemma3Model;

  std::unique_ptr<Model> make_model(int64_t rows) const;
  std::vector<nnx::Variable*> caches_of(Model& model) const;
  // `in`: the values of the sampling's inputs.
  std::vector<nnx::Output> choose(Model& model, ir::Value last_b1d, Choice choice,
                                  std::span<const ir::Value> in, ir::Value seen_bv,
                                  ir::Value bias_bv) const;
  std::vector<Token> tokens_of(Choice choice, const std::vector<pjrt::Array>& results,
                               std::span<const Sampling> rows) const;
  Error not_finite(int64_t position) const;
  void check_finite(const Token& token, int64_t position) const;
  nnx::Compiled& program(const std::string& key, const std::vector<nnx::Module*>& modules,
                         const std::vector<nnx::Input>& inputs, const nnx::Function& fn);
  nnx::Compiled& prefill_program(const PrefillKind& kind);
  nnx::Compiled& generate_program(Choice choice);
  nnx::Compiled& ahead_program(Choice choice);
  void take(Slot& slot, const Token& token);
  nnx::Compiled& insert_program();
  nnx::Compiled& extract_program();
  SeenTokens& seen_tokens();
  void remember(const Prefix& prefix, int64_t slot);
  void check_prompt(std::span<const int32_t> tokens, int64_t start, const Sampling& sampling) const;
  // A filling behind what the caches of prefill_ hold.
  Filling start_filling(std::span<const int32_t> tokens, Prefix prefix,
                        const PrefillOptions& options);
  Prefix finish(Filling filling);
  void run_chunk(std::span<const int32_t> tokens, std::span<const int32_t> following,
                 const PrefillOptions& options, Prefix& prefix);
  void take_scores(std::vector<pjrt::Array>& results, size_t count, const PrefillOptions& options,
                   Prefix& prefix) const;
  size_t checked(int64_t slot) const;  // throws kConfig
  void give_empty_caches(Model& model) const;

  const config::Config& config_;
  const models::gemma3::Devices& devices_;
  EngineOptions options_;
  std::unique_ptr<models::gemma3::WeightSource> source_;  // between open_params and load_params
  bool opened_ = false;
  std::unique_ptr<Model> generation_, prefill_;  // the same parameters, caches of slots and 1 rows
  std::unique_ptr<SeenTokens> seen_;             // once a request needs it
  std::vector<Slot> slots_;
  Tensor logits_;
  std::mutex programs_mutex_;
  std::map<std::string, nnx::Compiled> programs_;  // guarded by the mutex
};

}  // namespace mt::serve
