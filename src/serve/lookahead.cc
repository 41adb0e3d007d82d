#include "serve/lookahead.h"

#include <algorithm>
#include <chrono>

namespace mt::serve {

// FNV-1a over the last n tokens; a collision only spoils a guess.
uint64_t PromptLookup::key(size_t n) const {
  uint64_t hash = 0xcbf29ce484222325U ^ n;
  for (size_t i = text_.size() - n; i < text_.size(); ++i) {
    hash = (hash ^ static_cast<uint32_t>(text_[i])) * 0x100000001b3U;
  }
  return hash;
}

void PromptLookup::add(int32_t token) {
  for (const size_t n : kSizes) {
    if (text_.size() >= n) next_[key(n)] = text_.size();
  }
  text_.push_back(token);
}

std::vector<int32_t> PromptLookup::guess(int64_t most,
                                         const std::function<bool(int32_t)>& ends) const {
  for (const size_t n : kSizes) {
    if (text_.size() < n) continue;
    const auto it = next_.find(key(n));
    if (it == next_.end()) continue;
    const auto begin = text_.begin() + static_cast<std::ptrdiff_t>(it->second);
    const auto stop = begin + std::min<std::ptrdiff_t>(most, text_.end() - begin);
    const auto end = ends ? std::find_if(begin, stop, ends) : stop;
    return {begin, end == stop ? stop : end + 1};
  }
  return {};
}

void Payoff::note(bool guessed, int64_t tokens, double seconds) {
  constexpr double kKept = 0.9;
  Rate& rate = guessed ? guessing_ : plain_;
  since_guess_ = guessed ? 0 : since_guess_ + 1;
  if (rate.steps++ == 0) return;  // the first step of a program is slower than the others
  rate.tokens = kKept * rate.tokens + static_cast<double>(tokens);
  rate.seconds = kKept * rate.seconds + seconds;
}

bool Payoff::pays() const {
  constexpr int64_t kTries = 4, kPause = 32;
  if (plain_.steps < 2 || guessing_.steps < kTries) return true;
  if (guessing_.tokens * plain_.seconds > plain_.tokens * guessing_.seconds) return true;
  return since_guess_ >= kPause;  // the text may have changed
}

Lookahead::Lookahead(Engine& engine, std::span<const int32_t> text, const Sampling& sampling,
                     std::function<bool(int32_t)> ends, int64_t slot)
    : engine_(engine),
      ends_(std::move(ends)),
      slot_(static_cast<size_t>(slot)),
      can_guess_(engine.options().ahead > 0 && choice_for(sampling) != Choice::kFull) {
  for (const int32_t token : text) lookup_.add(token);
}

std::vector<int32_t> Lookahead::guess() const {
  if (!can_guess_ || !payoff_.pays()) return {};
  const int64_t room = engine_.options().max_length - engine_.length(0) - 2;
  return lookup_.guess(std::clamp<int64_t>(room, 0, engine_.options().ahead), ends_);
}

std::vector<Token> Lookahead::next() {
  const std::vector<int32_t> guessed = guess();
  const auto start = std::chrono::steady_clock::now();
  std::vector<Token> out =
      guessed.empty() ? std::vector{engine_.generate()[slot_]} : engine_.generate_ahead(guessed);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  payoff_.note(!guessed.empty(), std::ssize(out), seconds.count());
  guessed_ += std::ssize(guessed);
  right_ += std::ssize(out) - 1;
  for (const Token& token : out) lookup_.add(token.id);
  return out;
}

}  // namespace mt::serve
