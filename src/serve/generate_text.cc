#include "serve/generate_text.h"

#include "serve/lookahead.h"

namespace mt::serve {

Text generate_text(Engine& engine, const data::Tokenizer& tokenizer, const Token& first,
                   const TextOptions& options) {
  std::vector<int32_t> before = engine.tokens(options.slot);
  before.push_back(first.id);
  Lookahead lookahead(engine, before, options.sampling, options.ends, options.slot);
  data::StreamDecoder decoder(tokenizer);
  std::vector<Token> next{first};
  Text out;
  // Whether the text goes on behind these tokens.
  const auto take = [&] {
    for (const Token& token : next) {
      out.tokens.push_back(token);
      if (options.ends(token.id)) return false;
      // A model may have rows that no piece belongs to.
      const bool has_piece = token.id < tokenizer.vocab_size();
      options.show(has_piece ? decoder.push(token.id) : decoder.flush() + "\uFFFD");
    }
    out.full = engine.length(options.slot) + 1 >= engine.options().max_length;
    return !out.full && !options.stop();
  };
  while (take()) next = lookahead.next();
  options.show(decoder.flush());
  out.guessed = lookahead.guessed();
  out.right = lookahead.right();
  return out;
}

}  // namespace mt::serve
