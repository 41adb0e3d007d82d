#include "serve/text_stream.h"

#include <algorithm>

#include "base/error.h"

namespace mt::serve {

TextStream::TextStream(const data::Tokenizer& tokenizer, std::vector<std::string> stops)
    : tokenizer_(tokenizer), stops_(std::move(stops)), decoder_(tokenizer) {
  for (const std::string& stop : stops_) MT_CHECK(!stop.empty());
  // The longest first: of those that end at one place it begins first.
  std::sort(stops_.begin(), stops_.end(),
            [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

std::string TextStream::show(size_t bytes) {
  std::string out = held_.substr(0, bytes);
  held_.erase(0, bytes);
  shown_ += bytes;
  return out;
}

std::string TextStream::take(const std::string& text) {
  made_ += text.size();
  const size_t known = held_.size();
  held_ += text;
  for (size_t end = known + 1; end <= held_.size(); ++end) {
    const std::string_view so_far(held_.data(), end);
    for (const std::string& stop : stops_) {
      if (!so_far.ends_with(stop)) continue;
      stopped_ = true;
      return show(end - stop.size());
    }
  }
  // The longest end of the text that a stop string begins with.
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (held_.ends_with(std::string_view(stop).substr(0, n))) keep = n;
    }
  }
  return show(held_.size() - keep);
}

std::string TextStream::push(int32_t id) {
  if (stopped_) return "";
  // A model may have rows that no piece belongs to.
  return take(id < tokenizer_.vocab_size() ? decoder_.push(id) : decoder_.flush() + "\uFFFD");
}

std::string TextStream::finish() {
  if (stopped_) return "";
  std::string out = take(decoder_.flush());
  if (!stopped_) out += show(held_.size());
  return out;
}

}  // namespace mt::serve
