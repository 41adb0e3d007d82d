// What the two readers of program text share: lines, brackets, names by first appearance.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "prove/program_text.h"

namespace mt::prove {

struct SourceLine {
  std::string_view text;  // without spaces at its ends
  int64_t number = 0;
};

// Without empty lines and those that are all comment.
std::vector<SourceLine> lines_of(std::string_view text);

// Past the string that starts at text[at]; npos if it does not end.
size_t end_of_string(std::string_view text, size_t at);
// Past the bracket that closes the one at text[at]; npos if none does. Strings are skipped.
size_t end_of_brackets(std::string_view text, size_t at);
// The parts between commas outside strings and brackets.
std::vector<std::string_view> split_at_commas(std::string_view text);
bool is_name_char(char c);  // of %names and @symbols
std::string_view trimmed(std::string_view text);

// Numbers for names by first appearance.
class NameNumbers {
 public:
  std::string use(std::string_view name);     // its number, a new one if it has none
  std::string define(std::string_view name);  // its number if it was only used; else a new one
  bool is_known(std::string_view name) const { return numbers_.contains(name); }
  // A name that was used and never defined, with the line of its first use; {"", 0}: none.
  std::pair<std::string, int64_t> undefined() const;
  int64_t line = 0;  // where the reader is

 private:
  struct Entry {
    int64_t number = 0, line = 0;
    bool defined = false;
  };
  std::map<std::string, Entry, std::less<>> numbers_;
  int64_t next_ = 0;
};

// The brackets that are open, over lines. Throws kIo for one that closes nothing or another kind.
class OpenBrackets {
 public:
  OpenBrackets(const std::string& name) : name_(name) {}
  void pass(char c, int64_t line, std::string_view owner);
  // Throws kIo if any is open.
  void finish() const;
  size_t depth() const { return open_.size(); }
  const std::string& owner() const { return open_.back().owner; }

 private:
  struct Bracket {
    char opens;
    int64_t line;
    std::string owner;  // the operation whose line it is on
  };
  const std::string& name_;
  std::vector<Bracket> open_;
};

ProgramText read_stablehlo(std::string_view text, const std::string& name);
ProgramText read_hlo(std::string_view text, const std::string& name);

}  // namespace mt::prove
