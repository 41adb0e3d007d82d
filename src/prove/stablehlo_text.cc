// StableHLO as MLIR prints it, generic or pretty.
#include "prove/program_lines.h"

namespace mt::prove {
namespace {

constexpr size_t kNone = std::string_view::npos;
constexpr int kDeepestLocation = 8;  // of locations that name one another

struct Place {
  std::string module, source;
};

class Reader {
 public:
  Reader(std::string_view text, const std::string& name) : lines_(lines_of(text)), open_(name) {
    out_.name = name;
    out_.format = ProgramFormat::kStableHlo;
  }

  ProgramText read() {
    collect_locations();
    for (const SourceLine& line : lines_) {
      if (!line.text.starts_with("#")) statement(line);
    }
    open_.finish();
    for (OpRecord& record : meshes_) out_.ops.push_back(std::move(record));
    if (!has_module_) {
      throw fail(ErrorKind::kIo, "{}:1: no program: 'module' is missing", out_.name);
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(int64_t line, const std::string& what) const {
    throw fail(ErrorKind::kIo, "{}:{}: {}", out_.name, line, what);
  }

  // "#loc3 = loc(...)" lines, which may stand behind their uses.
  void collect_locations() {
    for (const SourceLine& line : lines_) {
      if (!line.text.starts_with("#")) continue;
      const size_t equals = line.text.find(" = ");
      if (equals == kNone) refuse(line.number, "expected '#NAME = ...'");
      const std::string_view value = line.text.substr(equals + 3);
      if (value.starts_with("loc(")) {
        if (end_of_brackets(value, 3) == kNone) refuse(line.number, "a location isn't closed");
        locations_[std::string(line.text.substr(0, equals))] = value;
      }
    }
  }

  // The first name and the first "file":line of a location.
  void resolve(std::string_view text, Place& place, int depth) const {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '"') {
        const size_t end = end_of_string(text, i);
        if (end == kNone) return;
        const std::string_view quoted = text.substr(i + 1, end - i - 2);
        if (end < text.size() && text[end] == ':') {
          const size_t stop = text.find_first_not_of("0123456789", end + 1);
          if (place.source.empty()) {
            place.source = std::string(quoted) + std::string(text.substr(end, stop - end));
          }
        } else if (place.module.empty()) {
          place.module = quoted;
        }
        i = end - 1;
      } else if (text[i] == '#' && depth < kDeepestLocation) {
        size_t end = i + 1;
        while (end < text.size() && is_name_char(text[end])) ++end;
        const auto it = locations_.find(text.substr(i, end - i));
        if (it != locations_.end()) resolve(it->second, place, depth + 1);
        i = end - 1;
      }
    }
  }

  // A name is defined where "=", or ":" and a type, follow; else it is used.
  static bool is_definition(std::string_view text, size_t end, bool at_start) {
    if (end < text.size() && text[end] == ':' && end + 1 < text.size() && text[end + 1] != ' ') {
      ++end;
      while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
    }
    if (end < text.size() && text[end] == ':') return true;
    const size_t next = text.find_first_not_of(' ', end);
    if (next == kNone) return false;
    if (text[next] == '=') return true;
    return at_start && text[next] == ',';
  }

  struct Normal {
    std::string text;
    Place place;
  };

  // `owner`: the operation, for its brackets.
  Normal normalise(std::string_view text, int64_t line, std::string_view owner) {
    Normal out;
    names_.line = line;
    bool before_equals = text.starts_with("%");
    for (size_t i = 0; i < text.size();) {
      const char c = text[i];
      size_t end = i + 1;
      if (c == '"') {
        end = end_of_string(text, i);
        if (end == kNone) refuse(line, "a string isn't closed");
        out.text += text.substr(i, end - i);
      } else if (c == '%' || c == '@') {
        end = named(text, i, line, before_equals, out.text);
      } else if (text.substr(i).starts_with("loc(") && (i == 0 || !is_name_char(text[i - 1]))) {
        end = end_of_brackets(text, i + 3);
        if (end == kNone) refuse(line, "a location isn't closed");
        Place place;
        resolve(text.substr(i, end - i), place, 0);
        if (out.place.module.empty()) out.place = place;
        if (!out.text.empty() && out.text.back() == ' ') out.text.pop_back();
      } else {
        if (c == '=') before_equals = false;
        open_.pass(c, line, owner);
        out.text += c;
      }
      i = end;
    }
    return out;
  }

  // %3, %3#1, %3:2 = , @main; returns where it ends.
  size_t named(std::string_view text, size_t at, int64_t line, bool at_start, std::string& out) {
    size_t end = at + 1;
    while (end < text.size() && is_name_char(text[end])) ++end;
    const std::string_view name = text.substr(at, end - at);
    if (name.size() == 1) refuse(line, std::string("expected a name behind '") + text[at] + "'");
    out += text[at];
    if (text[at] == '@') {
      out += symbols_.use(name);
    } else if (is_definition(text, end, at_start)) {
      out += names_.define(name);
    } else if (names_.is_known(name)) {
      out += names_.use(name);
    } else {
      refuse(line, std::string(name) + " is used before it is defined");
    }
    return end;
  }

  // "stablehlo.add" of '%0 = "stablehlo.add"(...)' or '%0 = stablehlo.add %a, %b'.
  static std::string kind_of(std::string_view text) {
    size_t at = 0;
    if (text.starts_with("%")) {
      at = text.find(" = ");
      if (at == kNone) return "";
      at += 3;
    }
    if (at < text.size() && text[at] == '"') ++at;
    size_t end = at;
    while (end < text.size() && is_name_char(text[end])) ++end;
    return std::string(text.substr(at, end - at));
  }

  void statement(const SourceLine& line) {
    std::string kind = kind_of(line.text);
    if (kind.empty() && line.text.starts_with("%")) refuse(line.number, "expected '%NAME = '");
    if (kind == "module" || kind == "builtin.module") return module_line(line);
    if (!has_module_) refuse(line.number, "no program: expected 'module'");
    if (kind == "func.func") return function_line(line);
    if (kind.empty()) {  // "}, {", "^bb0(...):"
      if (line.text.starts_with("}")) {
        kind = "end of " + (open_.depth() > 0 ? open_.owner() : std::string("nothing"));
      } else if (line.text.starts_with("^")) {
        kind = "block";
      } else {
        refuse(line.number, "expected an operation");
      }
    } else if (open_.depth() == 0) {
      refuse(line.number, "an operation outside the module");
    }
    const std::string owner = kind.starts_with("end of ") ? kind.substr(7) : kind;
    Normal n = normalise(line.text, line.number, owner);
    // Meshes come last: what they change in a module is found there first.
    (kind == "sdy.mesh" ? meshes_ : out_.ops)
        .push_back({kind, std::move(n.text), std::move(n.place.module), std::move(n.place.source),
                    line.number});
  }

  void module_line(const SourceLine& line) {
    has_module_ = true;
    std::string_view text = line.text;
    std::string rest = "module";
    const size_t at = text.find(" @");
    if (at != kNone) {
      const size_t end = text.find(' ', at + 1);
      text = end == kNone ? std::string_view("{") : text.substr(end);
      rest += text;
    } else {
      rest = text;
    }
    out_.ops.push_back(
        {"module", normalise(rest, line.number, "module").text, "", "", line.number});
  }

  // One record an argument and a result, so that a difference has the argument's name.
  void function_line(const SourceLine& line) {
    const std::string_view text = line.text;
    const size_t begin = text.find('(');
    const size_t end = begin == kNone ? kNone : end_of_brackets(text, begin);
    if (end == kNone) refuse(line.number, "a function's arguments aren't closed");
    part("func.func", text.substr(0, begin), line);
    for (const std::string_view argument :
         split_at_commas(text.substr(begin + 1, end - begin - 2))) {
      part("argument", argument, line);
    }
    std::string_view rest = trimmed(text.substr(end));
    if (rest.starts_with("->")) {
      rest = trimmed(rest.substr(2));
      if (rest.starts_with("(")) {
        const size_t close = end_of_brackets(rest, 0);
        if (close == kNone) refuse(line.number, "a function's results aren't closed");
        for (const std::string_view r : split_at_commas(rest.substr(1, close - 2))) {
          part("result", r, line);
        }
        rest = trimmed(rest.substr(close));
      }
    }
    part("func.func", rest, line);
  }

  void part(const char* kind, std::string_view text, const SourceLine& line) {
    Normal n = normalise(text, line.number, "func.func");
    out_.ops.push_back({kind, std::move(n.text), std::move(n.place.module),
                        std::move(n.place.source), line.number});
  }

  std::vector<SourceLine> lines_;
  OpenBrackets open_;
  NameNumbers names_, symbols_;
  std::map<std::string, std::string_view, std::less<>> locations_;
  bool has_module_ = false;
  std::vector<OpRecord> meshes_;
  ProgramText out_;
};

}  // namespace

ProgramText read_stablehlo(std::string_view text, const std::string& name) {
  return Reader(text, name).read();
}

}  // namespace mt::prove
