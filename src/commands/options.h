// The --options of a command, apart from its words (CONFIG.yml, key=value).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mt::commands {

class Options {
 public:
  // `flags` stand alone; `valued` take the next word, or what follows a '='. Throws kConfig for
  // others, for repeated ones and for a value that is missing.
  Options(const std::vector<std::string>& args, const std::vector<std::string>& flags,
          const std::vector<std::string>& valued);

  bool help() const { return help_; }  // --help or -h
  bool has(const std::string& name) const { return found_.contains(name); }
  const std::string* value(const std::string& name) const;  // null: not given
  // Throws kConfig for what is no whole number from 0 up.
  int64_t integer(const std::string& name, int64_t fallback) const;
  const std::vector<std::string>& words() const { return words_; }

 private:
  bool help_ = false;
  std::map<std::string, std::string> found_;
  std::vector<std::string> words_;
};

}  // namespace mt::commands
