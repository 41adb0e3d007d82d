// HLO as XLA prints it (--xla_dump_hlo_as_text), before or after optimisation.
#include <charconv>

#include "prove/program_lines.h"

namespace mt::prove {
namespace {

constexpr size_t kNone = std::string_view::npos;

// The number behind `key` ("line=") in `text`; -1 if there is none.
int64_t number_behind(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == kNone) return -1;
  int64_t value = -1;
  std::from_chars(text.data() + at + key.size(), text.data() + text.size(), value);
  return value;
}

std::string quoted_behind(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == kNone) return "";
  const size_t begin = at + key.size() - 1, end = end_of_string(text, begin);
  return end == kNone ? "" : std::string(text.substr(begin + 1, end - begin - 2));
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& name) : lines_(lines_of(text)), open_(name) {
    out_.name = name;
    out_.format = ProgramFormat::kHlo;
  }

  ProgramText read() {
    for (const SourceLine& line : lines_) statement(line);
    open_.finish();
    if (out_.ops.empty()) refuse(1, "the module has no computation");
    if (const auto [unknown, line] = names_.undefined(); line > 0) {
      refuse(line, unknown + " is never defined");
    }
    for (OpRecord& record : attributes_) out_.ops.push_back(std::move(record));
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(int64_t line, const std::string& what) const {
    throw fail(ErrorKind::kIo, "{}:{}: {}", out_.name, line, what);
  }

  void statement(const SourceLine& line) {
    const std::string_view text = line.text;
    names_.line = line.number;
    if (text.starts_with("HloModule ")) return module_line(line);
    if (open_.depth() == 0 && table_line(text)) return;
    if (open_.depth() > 0) {
      if (text.starts_with("}")) {
        open_.pass('}', line.number, "");
      } else {
        instruction(line);
      }
      return;
    }
    if (!text.ends_with("{") || text.find("->") == kNone) {
      refuse(line.number, "expected a computation, '%NAME (...) -> ... {'");
    }
    std::string_view name = text;
    const bool entry = name.starts_with("ENTRY ");
    if (entry) name = trimmed(name.substr(6));
    name = name.substr(0, name.find_first_of(" ("));
    if (!name.starts_with("%")) refuse(line.number, "expected '%NAME' (long names)");
    out_.ops.push_back({"computation",
                        std::string(entry ? "ENTRY %" : "computation %") + names_.define(name), "",
                        "", line.number});
    open_.pass('{', line.number, "computation");
  }

  void module_line(const SourceLine& line) {
    if (!attributes_.empty() || !out_.ops.empty()) refuse(line.number, "a second HloModule");
    bool first = true;
    for (const std::string_view part : split_at_commas(line.text)) {
      if (!first) attributes_.push_back({"module", std::string(part), "", "", line.number});
      first = false;
    }
    if (attributes_.empty()) attributes_.push_back({"module", "", "", "", line.number});
  }

  // FileNames, FunctionNames, FileLocations, StackFrames: where instructions come from.
  bool table_line(std::string_view text) {
    if (text == "FileNames" || text == "FunctionNames" || text == "FileLocations" ||
        text == "StackFrames") {
      table_ = text;
      return true;
    }
    if (table_.empty() || text.empty() || text[0] < '0' || text[0] > '9') return false;
    int64_t id = 0;
    std::from_chars(text.data(), text.data() + text.size(), id);
    if (table_ == "FileNames") {
      files_[id] = quoted_behind(text, "\"");
    } else if (table_ == "FileLocations") {
      places_[id] = {number_behind(text, "file_name_id="), number_behind(text, "line=")};
    } else if (table_ == "StackFrames") {
      frames_[id] = number_behind(text, "file_location_id=");
    }
    return true;
  }

  std::string source_of(std::string_view metadata) const {
    const std::string file = quoted_behind(metadata, "source_file=\"");
    if (!file.empty()) {
      return file + ":" + std::to_string(number_behind(metadata, "source_line="));
    }
    const auto frame = frames_.find(number_behind(metadata, "stack_frame_id="));
    if (frame == frames_.end()) return "";
    const auto place = places_.find(frame->second);
    if (place == places_.end()) return "";
    const auto found = files_.find(place->second.first);
    return found == files_.end() ? "" : found->second + ":" + std::to_string(place->second.second);
  }

  // The opcode of 'TYPE opcode(operands)...'.
  std::string opcode_of(std::string_view text, int64_t line) const {
    size_t at = 0;
    if (text.starts_with("(")) {
      at = end_of_brackets(text, 0);
      if (at == kNone) refuse(line, "a tuple's type isn't closed");
    } else {
      at = text.find(' ');
    }
    const size_t begin = at == kNone ? kNone : text.find_first_not_of(' ', at);
    const size_t end = begin == kNone ? kNone : text.find('(', begin);
    if (end == kNone || end == begin) refuse(line, "expected 'TYPE OPERATION(...)'");
    return std::string(text.substr(begin, end - begin));
  }

  void instruction(const SourceLine& line) {
    std::string_view text = line.text;
    const bool root = text.starts_with("ROOT ");
    if (root) text = trimmed(text.substr(5));
    const size_t equals = text.find(" = ");
    if (!text.starts_with("%") || equals == kNone) {
      refuse(line.number, "expected '%NAME = TYPE OPERATION(...)'");
    }
    OpRecord record;
    record.line = line.number;
    record.text = (root ? "ROOT %" : "%") + names_.define(text.substr(0, equals)) + " = ";
    text = text.substr(equals + 3);
    record.kind = opcode_of(text, line.number);
    normalise(text, record);
    out_.ops.push_back(std::move(record));
  }

  void normalise(std::string_view text, OpRecord& record) {
    const size_t depth = open_.depth();
    for (size_t i = 0; i < text.size();) {
      const std::string_view rest = text.substr(i);
      size_t end = i + 1;
      if (text[i] == '"') {
        end = end_of_string(text, i);
        if (end == kNone) refuse(record.line, "a string isn't closed");
        record.text += text.substr(i, end - i);
      } else if (text[i] == '%') {
        while (end < text.size() && is_name_char(text[end])) ++end;
        record.text += "%" + names_.use(text.substr(i, end - i));
      } else if (rest.starts_with("/*")) {
        const size_t close = text.find("*/", i);
        if (close == kNone) refuse(record.line, "a comment isn't closed");
        end = close + 2;
      } else if (rest.starts_with(", metadata={") || rest.starts_with(", origin={")) {
        end = end_of_brackets(text, text.find('{', i));
        if (end == kNone) refuse(record.line, "the metadata isn't closed");
        const std::string_view metadata = text.substr(i, end - i);
        if (rest.starts_with(", metadata=")) {
          record.module = quoted_behind(metadata, "op_name=\"");
          record.source = source_of(metadata);
        }
      } else if (rest.starts_with(", channel_id=")) {
        end = std::min(text.find_first_not_of("0123456789", i + 13), text.size());
        record.text += ", channel_id=" + channels_.use(text.substr(i + 13, end - i - 13));
      } else {
        open_.pass(text[i], record.line, record.kind);
        record.text += text[i];
      }
      i = end;
    }
    if (open_.depth() != depth) refuse(record.line, "a bracket isn't closed");
  }

  std::vector<SourceLine> lines_;
  OpenBrackets open_;
  NameNumbers names_, channels_;
  std::string_view table_;
  std::map<int64_t, std::string> files_;
  std::map<int64_t, std::pair<int64_t, int64_t>> places_;  // file, line
  std::map<int64_t, int64_t> frames_;                      // place
  std::vector<OpRecord> attributes_;
  ProgramText out_;
};

}  // namespace

ProgramText read_hlo(std::string_view text, const std::string& name) {
  return Reader(text, name).read();
}

}  // namespace mt::prove
