// The text of generated tokens as a client may see it: valid UTF-8 at every moment, and nothing of
// a stop string, whichever tokens it is made of. Text that may be the beginning of one is held back
// until it is known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace mt::serve {

class TextStream {
 public:
  // The tokenizer must outlive this. Empty stop strings are our own bug.
  TextStream(const data::Tokenizer& tokenizer, std::vector<std::string> stops);

  // The text that may be shown now that this token came; "" once a stop string is complete. Where
  // several would do, the one complete first counts, and of these the longest.
  std::string push(int32_t id);
  // What was held back, at the end of the text.
  std::string finish();

  bool stopped() const { return stopped_; }
  // Bytes of text that the tokens so far made, shown or not, and that were shown.
  size_t made() const { return made_; }
  size_t shown() const { return shown_; }

 private:
  std::string take(const std::string& text);
  std::string show(size_t bytes);

  const data::Tokenizer& tokenizer_;
  std::vector<std::string> stops_;
  data::StreamDecoder decoder_;
  std::string held_;
  size_t made_ = 0, shown_ = 0;
  bool stopped_ = false;
};

}  // namespace mt::serve
