#include "prove/program_lines.h"

#include <algorithm>
#include <cctype>

namespace mt::prove {
namespace {

constexpr std::string_view kSpace = " \t\r";

bool opens(char c) { return c == '(' || c == '[' || c == '{'; }
bool closes(char c) { return c == ')' || c == ']' || c == '}'; }
char partner(char c) { return c == ')' ? '(' : c == ']' ? '[' : '{'; }

}  // namespace

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

std::vector<SourceLine> lines_of(std::string_view text) {
  std::vector<SourceLine> out;
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = trimmed(text.substr(at, end - at));
    ++number;
    if (!line.empty() && !line.starts_with("//")) out.push_back({line, number});
    at = end + 1;
  }
  return out;
}

size_t end_of_string(std::string_view text, size_t at) {
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

size_t end_of_brackets(std::string_view text, size_t at) {
  std::vector<char> open;
  for (size_t i = at; i < text.size(); ++i) {
    if (text[i] == '"') {
      i = end_of_string(text, i);
      if (i == std::string_view::npos) return i;
      --i;
    } else if (opens(text[i])) {
      open.push_back(text[i]);
    } else if (closes(text[i])) {
      if (open.empty() || open.back() != partner(text[i])) return std::string_view::npos;
      open.pop_back();
      if (open.empty()) return i + 1;
    }
  }
  return std::string_view::npos;
}

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> out;
  size_t begin = 0, i = 0;
  int64_t angles = 0;  // of #stablehlo<...> and tensor<...>
  while (i < text.size()) {
    const char c = text[i];
    if (c == '"' || opens(c)) {
      const size_t end = c == '"' ? end_of_string(text, i) : end_of_brackets(text, i);
      i = end == std::string_view::npos ? text.size() : end;
      continue;
    }
    if (c == '<') ++angles;
    if (c == '>' && (i == 0 || text[i - 1] != '-')) --angles;
    if (c == ',' && angles <= 0) {
      out.push_back(trimmed(text.substr(begin, i - begin)));
      begin = i + 1;
    }
    ++i;
  }
  const std::string_view rest = trimmed(text.substr(begin));
  if (!rest.empty() || !out.empty()) out.push_back(rest);
  return out;
}

bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-' ||
         c == '$';
}

std::string NameNumbers::use(std::string_view name) {
  auto it = numbers_.find(name);
  if (it == numbers_.end()) {
    it = numbers_.emplace(std::string(name), Entry{next_++, line, false}).first;
  }
  return std::to_string(it->second.number);
}

std::string NameNumbers::define(std::string_view name) {
  auto it = numbers_.find(name);
  if (it == numbers_.end()) {
    it = numbers_.emplace(std::string(name), Entry{next_++, line, true}).first;
  } else if (it->second.defined) {
    it->second.number = next_++;
  }
  it->second.defined = true;
  return std::to_string(it->second.number);
}

std::pair<std::string, int64_t> NameNumbers::undefined() const {
  for (const auto& [name, entry] : numbers_) {
    if (!entry.defined) return {name, entry.line};
  }
  return {"", 0};
}

void OpenBrackets::pass(char c, int64_t line, std::string_view owner) {
  if (opens(c)) {
    open_.push_back({c, line, std::string(owner)});
  } else if (closes(c)) {
    if (open_.empty()) throw fail(ErrorKind::kIo, "{}:{}: '{}' closes nothing", name_, line, c);
    if (open_.back().opens != partner(c)) {
      throw fail(ErrorKind::kIo, "{}:{}: '{}' doesn't close the '{}' of line {}", name_, line, c,
                 open_.back().opens, open_.back().line);
    }
    open_.pop_back();
  }
}

void OpenBrackets::finish() const {
  if (open_.empty()) return;
  throw fail(ErrorKind::kIo, "{}:{}: '{}' is never closed", name_, open_.back().line,
             open_.back().opens);
}

}  // namespace mt::prove
