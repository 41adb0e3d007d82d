// What goes into an engine's slots and comes out of them, and the calls that an orchestrator makes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/tensor.h"
#include "pjrt/array.h"
#include "serve/sampling.h"

namespace mt::serve {

struct Alternative {
  int32_t id = 0;
  float log_prob = 0;
};

struct Token {
  int32_t id = 0;
  float log_prob = 0;  // under the distribution as the model gave it, whatever the settings
  std::vector<Alternative> top;  // Sampling::top_log_probs of them, the most likely first
};

struct PrefillOptions {
  bool log_probs = false;     // of the prompt's tokens too
  int32_t top_log_probs = 0;  // with them: so many most likely tokens at each place of the prompt
};

// A prompt's caches and its first generated token: what insert() puts into a slot.
struct Prefix {
  std::vector<std::shared_ptr<pjrt::Array>> caches;
  int64_t length = 0;           // tokens in the caches
  std::vector<int32_t> tokens;  // these
  Token first;
  // With PrefillOptions::log_probs: [i] is log p of the i-th token that was given to prefill() or
  // extend() after all before it; NaN for the first, of which nothing is known.
  std::vector<float> log_probs;
  std::vector<std::vector<Alternative>> top;  // beside log_probs, with top_log_probs
  Tensor logits;  // f32 [1, V], of the token after the prompt; with keep_logits
  Sampling sampling;
};

// A prompt on its way: what begin() makes and advance() runs, a chunk at a time.
struct Filling {
  Prefix prefix;                // of the tokens run so far; .tokens are all of them
  std::vector<int32_t> tokens;  // given to begin()
  size_t done = 0;              // of these
  PrefillOptions options;
};

// What an orchestrator runs: slots, each a text with its caches. Of one thread at a time.
class SlotEngine {
 public:
  virtual ~SlotEngine() = default;
  virtual int64_t slots() const = 0;
  virtual int64_t max_length() const = 0;  // of a slot, prompt and output
  virtual int64_t vocab_size() const = 0;

  // prefill() in pieces, with steps of the slots between them; several may be on their way.
  virtual Filling begin(std::span<const int32_t> tokens, const Sampling& sampling,
                        const PrefillOptions& options) = 0;
  // The next chunk; true when it was the last, and filling.prefix is what prefill() gives. After a
  // throw the filling is of no more use; others are as they were.
  virtual bool advance(Filling& filling) = 0;
  virtual void insert(Prefix prefix, int64_t slot) = 0;
  // The next token of every slot; those of slots that hold nothing, or are full, mean nothing.
  // Logits that aren't finite are a log_prob of NaN: that slot stays as it was.
  virtual std::vector<Token> step() = 0;
  virtual void release(int64_t slot) = 0;
  virtual void clear() = 0;                        // all slots anew, after a fault
  virtual int64_t length(int64_t slot) const = 0;  // tokens in the slot's caches; 0: free
};

}  // namespace mt::serve
