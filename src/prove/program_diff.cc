#include "prove/program_diff.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace mt::prove {
namespace {

constexpr size_t kShown = 300;     // characters of an operation, around what differs
constexpr size_t kBefore = 80;     // of which before it
constexpr size_t kFarthest = 400;  // operations to look at for a user

// "%12" of "ROOT %12 = ..."; "" if nothing is defined.
std::string defined_name(const std::string& text) {
  const size_t at = text.starts_with("ROOT ") ? 5 : 0;
  if (at >= text.size() || text[at] != '%') return "";
  return text.substr(at, text.find_first_not_of("0123456789", at + 1) - at);
}

bool uses(const std::string& text, const std::string& name) {
  for (size_t at = text.find(name, 1); at != std::string::npos; at = text.find(name, at + 1)) {
    const size_t end = at + name.size();
    if (end == text.size() || text[end] < '0' || text[end] > '9') return true;
  }
  return false;
}

DiffPlace place_of(const ProgramText& program, size_t index) {
  DiffPlace out;
  out.op = program.ops[index];
  out.module = out.op.module;
  out.source = out.op.source;
  if (!out.module.empty() || !out.source.empty()) return out;
  out.nearby = true;
  const auto take = [&](const OpRecord& op) {
    out.module = op.module;
    out.source = op.source;
    return !out.module.empty();
  };
  const std::string name = defined_name(out.op.text);
  const size_t end = std::min(program.ops.size(), index + kFarthest);
  for (size_t i = index + 1; i < end && !name.empty(); ++i) {
    if (uses(program.ops[i].text, name) && take(program.ops[i])) return out;
  }
  for (size_t i = index; i-- > 0;) {
    if (take(program.ops[i])) return out;
  }
  return out;
}

// What stands around the first character in which the two differ.
std::string shown(const std::string& text, size_t difference) {
  if (text.size() <= kShown) return text;
  const size_t begin = difference > kBefore ? difference - kBefore : 0;
  std::string out = begin > 0 ? "..." : "";
  out += text.substr(begin, kShown);
  return out + (begin + kShown < text.size() ? "..." : "");
}

size_t first_difference(const ProgramDiff& d) {
  if (!d.at_a || !d.at_b) return 0;
  const std::string &a = d.at_a->op.text, &b = d.at_b->op.text;
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

std::string side_text(const char* label, const std::string& name,
                      const std::optional<DiffPlace>& place, size_t difference) {
  if (!place) return fmt::format("  {}  {}: ends here\n", label, name);
  const std::string where = place->module.empty() ? "(no module is said)" : place->module;
  return fmt::format("  {}  {}:{}  {}\n     module {}{}{}\n     {}\n", label, name, place->op.line,
                     place->op.kind, where, place->source.empty() ? "" : " at " + place->source,
                     place->nearby ? " (of the operation beside it)" : "",
                     shown(place->op.text, difference));
}

Json side_json(const std::optional<DiffPlace>& place) {
  if (!place) return {};
  return Json::Object{{"line", place->op.line},  {"kind", place->op.kind},
                      {"module", place->module}, {"source", place->source},
                      {"nearby", place->nearby}, {"text", place->op.text}};
}

}  // namespace

ProgramDiff compare(const ProgramText& a, const ProgramText& b) {
  if (a.format != b.format) {
    const auto words = [](const ProgramText& p) {
      return p.format == ProgramFormat::kHlo ? "HLO" : "StableHLO";
    };
    throw fail(ErrorKind::kConfig,
               "{} is {} and {} is {}: only programs of one form can be compared", a.name, words(a),
               b.name, words(b));
  }
  ProgramDiff out{a.name, b.name, a.ops.size(), b.ops.size(), true, 0, {}, {}, 0, {}};
  for (const OpRecord& op : a.ops) ++out.counts[op.kind].first;
  for (const OpRecord& op : b.ops) ++out.counts[op.kind].second;
  std::erase_if(out.counts, [](const auto& c) { return c.second.first == c.second.second; });
  const size_t shorter = std::min(a.ops.size(), b.ops.size());
  size_t first = shorter;
  for (size_t i = 0; i < shorter; ++i) {
    if (a.ops[i].text == b.ops[i].text) continue;
    first = std::min(first, i);
    ++out.differing;
  }
  if (a.ops.size() != b.ops.size()) out.differing = -1;
  out.equal = out.differing == 0;
  if (out.equal) return out;
  out.index = first;
  if (first < a.ops.size()) out.at_a = place_of(a, first);
  if (first < b.ops.size()) out.at_b = place_of(b, first);
  return out;
}

std::string to_text(const ProgramDiff& d) {
  if (d.equal) return fmt::format("equal: {} operations, names and metadata apart\n", d.a_ops);
  std::string out =
      d.differing < 0
          ? fmt::format(
                "different: {} operations against {}; the first difference is operation {}\n",
                d.a_ops, d.b_ops, d.index)
          : fmt::format("different: {} of {} operations; the first is operation {}\n", d.differing,
                        d.a_ops, d.index);
  const size_t difference = first_difference(d);
  out += side_text("A", d.a, d.at_a, difference) + side_text("B", d.b, d.at_b, difference);
  for (const auto& [kind, count] : d.counts) {
    out += fmt::format("  {}: {} against {}\n", kind, count.first, count.second);
  }
  return out;
}

Json to_json(const ProgramDiff& d) {
  Json::Object counts;
  for (const auto& [kind, count] : d.counts) {
    counts.emplace_back(kind, Json::Array{count.first, count.second});
  }
  return Json::Object{
      {"a", d.a},
      {"b", d.b},
      {"equal", d.equal},
      {"operations", Json::Array{static_cast<int64_t>(d.a_ops), static_cast<int64_t>(d.b_ops)}},
      {"differing", d.differing},
      {"first", static_cast<int64_t>(d.index)},
      {"at_a", side_json(d.at_a)},
      {"at_b", side_json(d.at_b)},
      {"counts", std::move(counts)}};
}

}  // namespace mt::prove
