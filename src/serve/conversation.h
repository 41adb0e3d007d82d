// A conversation in one slot of an engine, in Gemma's template:
//   <bos><start_of_turn>user\n[system\n\n]text<end_of_turn>\n<start_of_turn>model\nanswer
//   <end_of_turn>\n<start_of_turn>user\n...
// The slot keeps its caches between turns: only what is new is run. A text is never read as control
// tokens.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "serve/engine.h"

namespace mt::serve {

struct Answer {
  int64_t forgotten = 0;  // turns that were dropped from the front to make room, before it
  int64_t run = 0;        // tokens that prefill ran
  bool full = false;      // the slot was full before the answer's end
  int64_t guessed = 0;    // tokens, from what the conversation said before
  int64_t right = 0;      // of these
};

// What stands before the model's answer to a turn. `system`: before the text of the first one.
std::vector<int32_t> turn_opening(const data::Tokenizer& tokenizer, const std::string& system,
                                  const std::string& text, bool first);

class Conversation {
 public:
  // `system`: text before the first turn. The engine and tokenizer must outlive this. Throws
  // kConfig if the vocabulary has no turns.
  Conversation(Engine& engine, const data::Tokenizer& tokenizer, const Sampling& sampling,
               const std::string& system, int64_t slot = 0);

  // Runs a turn of the user and generates the model's, to its end or until `stop` says so after a
  // step. `show` gets pieces of valid UTF-8. If an error is thrown (kLimit for a text that is too
  // long, kIo for one that isn't UTF-8), the conversation is as it was before.
  Answer answer(const std::string& text, const std::function<void(const std::string&)>& show,
                const std::function<bool()>& stop);
  void reset();
  // All turns so far, the last one's end included.
  const std::vector<int32_t>& tokens() const { return tokens_; }

 private:
  using Tokens = std::vector<int32_t>;
  struct Turn {
    std::string text;
    Tokens answer;  // with <end_of_turn>
  };

  // The turns, then the opening of one more.
  Tokens whole(const std::vector<Turn>& turns, const std::string& text) const;
  Prefix run(const Tokens& tokens, Answer& answer);
  // The model's turn, with its end.
  Tokens generate(const Token& first, const std::function<void(const std::string&)>& show,
                  const std::function<bool()>& stop, Answer& answer);

  Engine& engine_;
  const data::Tokenizer& tokenizer_;
  Sampling sampling_;
  std::string system_;
  int64_t slot_;
  int32_t end_;  // <end_of_turn>
  std::vector<Turn> turns_;
  Tokens tokens_;
};

}  // namespace mt::serve
