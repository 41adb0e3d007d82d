#include "serve/conversation.h"

#include <algorithm>

#include "base/error.h"
#include "serve/generate_text.h"

namespace mt::serve {
namespace {

constexpr int64_t kRoom = 256;  // tokens that a new turn leaves for its answer, if the slot is long

// Without white space around it, as the template has it.
std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n\v\f";
  const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

int32_t required(const data::Tokenizer& tokenizer, const char* piece) {
  const int64_t id = tokenizer.id_of(piece);
  if (id >= 0) return static_cast<int32_t>(id);
  throw fail(ErrorKind::kConfig, "a conversation needs Gemma's tokenizer: this one has no {}",
             piece);
}

}  // namespace

std::vector<int32_t> turn_opening(const data::Tokenizer& tokenizer, const std::string& system,
                                  const std::string& text, bool first) {
  const int32_t start = required(tokenizer, "<start_of_turn>");
  std::vector<int32_t> out;
  const auto append = [&](const std::string& piece) {
    const auto ids = tokenizer.encode(piece, {.plain = true});
    out.insert(out.end(), ids.begin(), ids.end());
  };
  if (!first) append("\n");
  if (first && tokenizer.bos_id() >= 0) out.push_back(static_cast<int32_t>(tokenizer.bos_id()));
  out.push_back(start);
  const std::string before = first ? trimmed(system) : "";
  append("user\n" + (before.empty() ? "" : before + "\n\n") + trimmed(text));
  out.push_back(required(tokenizer, "<end_of_turn>"));
  append("\n");
  out.push_back(start);
  append("model\n");
  return out;
}

Conversation::Conversation(Engine& engine, const data::Tokenizer& tokenizer,
                           const Sampling& sampling, const std::string& system, int64_t slot)
    : engine_(engine),
      tokenizer_(tokenizer),
      sampling_(sampling),
      system_(system),
      slot_(slot),
      end_(required(tokenizer, "<end_of_turn>")) {
  required(tokenizer, "<start_of_turn>");
}

void Conversation::reset() {
  engine_.release(slot_);
  turns_.clear();
  tokens_.clear();
}

Conversation::Tokens Conversation::whole(const std::vector<Turn>& turns,
                                         const std::string& text) const {
  Tokens out;
  const auto append = [&](const Tokens& more) { out.insert(out.end(), more.begin(), more.end()); };
  for (const Turn& turn : turns) {
    append(turn_opening(tokenizer_, system_, turn.text, out.empty()));
    append(turn.answer);
  }
  append(turn_opening(tokenizer_, system_, text, out.empty()));
  return out;
}

// What the slot holds is kept where it is the beginning of these tokens.
Prefix Conversation::run(const Tokens& tokens, Answer& answer) {
  const Tokens& held = engine_.tokens(slot_);
  const bool extends = !held.empty() && held.size() < tokens.size() &&
                       std::equal(held.begin(), held.end(), tokens.begin());
  const auto rest = std::span(tokens).subspan(extends ? held.size() : 0);
  answer.run = static_cast<int64_t>(rest.size());
  return extends ? engine_.extend(slot_, rest, sampling_) : engine_.prefill(rest, sampling_);
}

Conversation::Tokens Conversation::generate(const Token& first,
                                            const std::function<void(const std::string&)>& show,
                                            const std::function<bool()>& stop, Answer& answer) {
  const auto ends = [&](int32_t id) { return id == end_ || id == tokenizer_.eos_id(); };
  const Text text = generate_text(engine_, tokenizer_, first, {slot_, sampling_, ends, show, stop});
  answer.full = text.full;
  answer.guessed = text.guessed;
  answer.right = text.right;
  Tokens out;
  for (const Token& token : text.tokens) {
    if (!ends(token.id)) out.push_back(token.id);
  }
  out.push_back(end_);
  return out;
}

Answer Conversation::answer(const std::string& user,
                            const std::function<void(const std::string&)>& show,
                            const std::function<bool()>& stop) {
  const int64_t length = engine_.options().max_length;
  const auto fits = [&](const Tokens& tokens, int64_t room) {
    return static_cast<int64_t>(tokens.size()) + room <= length;
  };
  Answer answer;
  std::vector<Turn> turns = turns_;
  Tokens tokens = whole(turns, user);
  while (!turns.empty() && !fits(tokens, std::min(kRoom, length / 4))) {
    turns.erase(turns.begin());
    ++answer.forgotten;
    tokens = whole(turns, user);
  }
  if (!fits(tokens, 1)) {
    throw fail(ErrorKind::kLimit,
               "this turn has {} tokens, max_target_length={}: make it shorter, or the buffer "
               "longer",
               tokens.size(), length);
  }
  Prefix prefix = run(tokens, answer);
  const Token first = prefix.first;
  engine_.insert(std::move(prefix), slot_);
  const Tokens said = generate(first, show, stop, answer);
  tokens.insert(tokens.end(), said.begin(), said.end());
  turns.push_back({user, said});
  turns_ = std::move(turns);
  tokens_ = std::move(tokens);
  return answer;
}

}  // namespace mt::serve
