#include "serve/conversation.h"

#include <algorithm>

#include "base/error.h"

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

Conversation::Conversation(Engine& engine, const data::Tokenizer& tokenizer,
                           const Sampling& sampling, const std::string& system, int64_t slot)
    : engine_(engine),
      tokenizer_(tokenizer),
      sampling_(sampling),
      system_(trimmed(system)),
      slot_(slot),
      start_(required(tokenizer, "<start_of_turn>")),
      end_(required(tokenizer, "<end_of_turn>")) {}

void Conversation::reset() {
  engine_.release(slot_);
  turns_.clear();
  tokens_.clear();
}

Conversation::Tokens Conversation::opening(const std::string& text, bool first) const {
  Tokens out;
  const auto append = [&](const std::string& piece) {
    const Tokens ids = tokenizer_.encode(piece, {.plain = true});
    out.insert(out.end(), ids.begin(), ids.end());
  };
  if (!first) append("\n");
  if (first && tokenizer_.bos_id() >= 0) out.push_back(static_cast<int32_t>(tokenizer_.bos_id()));
  out.push_back(start_);
  append("user\n" + (first && !system_.empty() ? system_ + "\n\n" : "") + text);
  out.push_back(end_);
  append("\n");
  out.push_back(start_);
  append("model\n");
  return out;
}

Conversation::Tokens Conversation::whole(const std::vector<Turn>& turns,
                                         const std::string& text) const {
  Tokens out;
  const auto append = [&](const Tokens& more) { out.insert(out.end(), more.begin(), more.end()); };
  for (const Turn& turn : turns) {
    append(opening(turn.text, out.empty()));
    append(turn.answer);
  }
  append(opening(text, out.empty()));
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

Conversation::Tokens Conversation::generate(int32_t id,
                                            const std::function<void(const std::string&)>& show,
                                            const std::function<bool()>& stop, Answer& answer) {
  data::StreamDecoder decoder(tokenizer_);
  Tokens out;
  while (id != end_ && id != tokenizer_.eos_id()) {
    out.push_back(id);
    // A model may have rows that no piece belongs to.
    show(id < tokenizer_.vocab_size() ? decoder.push(id) : decoder.flush() + "\uFFFD");
    answer.full = engine_.length(slot_) + 1 >= engine_.options().max_length;
    if (answer.full || stop()) break;
    id = engine_.generate()[static_cast<size_t>(slot_)].id;
  }
  show(decoder.flush());
  out.push_back(end_);
  return out;
}

Answer Conversation::answer(const std::string& user,
                            const std::function<void(const std::string&)>& show,
                            const std::function<bool()>& stop) {
  const std::string text = trimmed(user);
  const int64_t length = engine_.options().max_length;
  const auto fits = [&](const Tokens& tokens, int64_t room) {
    return static_cast<int64_t>(tokens.size()) + room <= length;
  };
  Answer answer;
  std::vector<Turn> turns = turns_;
  Tokens tokens = whole(turns, text);
  while (!turns.empty() && !fits(tokens, std::min(kRoom, length / 4))) {
    turns.erase(turns.begin());
    ++answer.forgotten;
    tokens = whole(turns, text);
  }
  if (!fits(tokens, 1)) {
    throw fail(ErrorKind::kLimit,
               "this turn has {} tokens, max_target_length={}: make it shorter, or the buffer "
               "longer",
               tokens.size(), length);
  }
  Prefix prefix = run(tokens, answer);
  const int32_t first = prefix.first.id;
  engine_.insert(std::move(prefix), slot_);
  const Tokens said = generate(first, show, stop, answer);
  tokens.insert(tokens.end(), said.begin(), said.end());
  turns.push_back({text, said});
  turns_ = std::move(turns);
  tokens_ = std::move(tokens);
  return answer;
}

}  // namespace mt::serve
