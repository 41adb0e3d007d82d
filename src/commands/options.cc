#include "commands/options.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "config/suggest.h"

namespace mt::commands {
namespace {

bool contains(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

}  // namespace

Options::Options(const std::vector<std::string>& args, const std::vector<std::string>& flags,
                 const std::vector<std::string>& valued) {
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& word = args[i];
    if (word == "--help" || word == "-h") {
      help_ = true;
      continue;
    }
    if (!word.starts_with("--")) {
      words_.push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    std::string value;
    if (contains(valued, name)) {
      if (equals != std::string::npos) {
        value = word.substr(equals + 1);
      } else if (i + 1 < args.size()) {
        value = args[++i];
      }
      if (value.empty()) throw fail(ErrorKind::kConfig, "{}: its value is missing", name);
    } else if (!contains(flags, word)) {
      std::vector<std::string_view> known(flags.begin(), flags.end());
      known.insert(known.end(), valued.begin(), valued.end());
      throw fail(ErrorKind::kConfig, "{}: there is no such option (--help lists them).{}", word,
                 config::did_you_mean(name, known));
    }
    if (!found_.emplace(name, value).second) {
      throw fail(ErrorKind::kConfig, "{} is given twice", name);
    }
  }
}

const std::string* Options::value(const std::string& name) const {
  const auto it = found_.find(name);
  return it == found_.end() ? nullptr : &it->second;
}

int64_t Options::integer(const std::string& name, int64_t fallback) const {
  const std::string* text = value(name);
  if (text == nullptr) return fallback;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size() || number < 0) {
    throw fail(ErrorKind::kConfig, "{} {}: expected a whole number from 0 up", name, *text);
  }
  return number;
}

}  // namespace mt::commands
