// One text in a slot, token by token, for whoever shows it: decoding a prompt, a turn of a
// conversation.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "serve/engine.h"

namespace mt::serve {

struct TextOptions {
  int64_t slot = 0;
  Sampling sampling;                             // the slot's
  std::function<bool(int32_t)> ends;             // whether this token ends the text
  std::function<void(const std::string&)> show;  // pieces of valid UTF-8, as they come
  std::function<bool()> stop;                    // asked after each step of a token or more
};

struct Text {
  std::vector<Token> tokens;  // with the end, if one came
  bool full = false;          // the slot was full before the end
  int64_t guessed = 0;        // tokens, from what the text said before
  int64_t right = 0;          // of these
};

// Goes on behind a prompt that insert() has put into the slot, and the token that was chosen after
// it, until the text's end, a full slot or `stop`. Guesses ahead where the engine can.
Text generate_text(Engine& engine, const data::Tokenizer& tokenizer, const Token& first,
                   const TextOptions& options);

}  // namespace mt::serve
