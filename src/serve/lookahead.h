// Generation of one text that guesses its next tokens from what it said before (prompt lookup: the
// tokens that followed the last three, or two, the last time) and checks them all in one step. The
// tokens are those that single steps give; a step only gives several of them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "serve/engine.h"

namespace mt::serve {

// A text and what followed each of its n-grams.
class PromptLookup {
 public:
  void add(int32_t token);
  // Up to `most` tokens that followed the latest earlier place like the end of the text, and none
  // behind one that `ends` a text.
  std::vector<int32_t> guess(int64_t most, const std::function<bool(int32_t)>& ends = {}) const;

 private:
  static constexpr size_t kSizes[] = {3, 2};  // of n-grams; the first that was seen before counts
  uint64_t key(size_t n) const;

  std::vector<int32_t> text_;
  std::unordered_map<uint64_t, size_t> next_;  // n-gram -> where the token behind it lies
};

// Whether steps that guess give more tokens a second than steps that don't, by what was measured.
class Payoff {
 public:
  void note(bool guessed, int64_t tokens, double seconds);
  bool pays() const;

 private:
  struct Rate {
    double tokens = 0, seconds = 0;  // of late: older ones fade
    int64_t steps = 0;
  };
  Rate plain_, guessing_;
  int64_t since_guess_ = 0;  // plain steps
};

// The text of a slot. With options().ahead of 0, or settings that depend on tokens seen, every step
// is a plain one.
class Lookahead {
 public:
  // `text`: the prompt and the token that was chosen after it; insert() has been called. Behind a
  // token that `ends` the text nothing is guessed, so that nothing behind it is in the caches.
  Lookahead(Engine& engine, std::span<const int32_t> text, const Sampling& sampling,
            std::function<bool(int32_t)> ends = {}, int64_t slot = 0);
  std::vector<Token> next();  // one token or more
  int64_t guessed() const { return guessed_; }
  int64_t right() const { return right_; }

 private:
  std::vector<int32_t> guess() const;

  Engine& engine_;
  std::function<bool(int32_t)> ends_;
  size_t slot_;
  bool can_guess_;
  PromptLookup lookup_;
  Payoff payoff_;
  int64_t guessed_ = 0, right_ = 0;
};

}  // namespace mt::serve
