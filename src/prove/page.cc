#include "prove/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace mt::prove {
namespace {

constexpr std::string_view kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:80em;padding:0 1em;"
    "color:#1a1a1a;background:#fff}h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}"
    "table{border-collapse:collapse;font-size:13px}td,th{border-bottom:1px solid #ddd;"
    "padding:2px 10px 2px 0;text-align:left;vertical-align:top}td.n{text-align:right;"
    "font-variant-numeric:tabular-nums}pre{background:#f5f5f5;padding:.8em;overflow-x:auto}"
    "svg{max-width:100%}";

constexpr std::array<std::string_view, 4> kColours{"#0b62a4", "#c0392b", "#2e7d32", "#8e44ad"};
constexpr double kWidth = 720, kHeight = 240, kMargin = 40;

struct Extent {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  size_t length = 0;
};

Extent extent_of(const std::vector<std::vector<double>>& series) {
  Extent e;
  for (const auto& line : series) {
    e.length = std::max(e.length, line.size());
    for (const double y : line) {
      if (!std::isfinite(y)) continue;
      e.low = std::min(e.low, y);
      e.high = std::max(e.high, y);
    }
  }
  if (e.low >= e.high) e.high = e.low + 1;
  return e;
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

void Page::heading(std::string_view text) {
  body_ += fmt::format("<h2>{}</h2>\n", escape_html(text));
}

void Page::paragraph(std::string_view text) {
  body_ += fmt::format("<p>{}</p>\n", escape_html(text));
}

void Page::preformatted(std::string_view text) {
  body_ += fmt::format("<pre>{}</pre>\n", escape_html(text));
}

void Page::table(const std::vector<std::string>& head,
                 const std::vector<std::vector<std::string>>& rows,
                 const std::vector<size_t>& numbers) {
  body_ += "<table>\n<tr>";
  for (const std::string& cell : head) body_ += fmt::format("<th>{}</th>", escape_html(cell));
  body_ += "</tr>\n";
  for (const auto& row : rows) {
    MT_CHECK(row.size() == head.size());
    body_ += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      const bool number = std::find(numbers.begin(), numbers.end(), i) != numbers.end();
      body_ += fmt::format("<td{}>{}</td>", number ? " class=\"n\"" : "", escape_html(row[i]));
    }
    body_ += "</tr>\n";
  }
  body_ += "</table>\n";
}

void Page::chart(const std::vector<std::string>& names,
                 const std::vector<std::vector<double>>& series) {
  const Extent e = extent_of(series);
  if (e.length < 2 || !std::isfinite(e.low)) return;
  body_ +=
      fmt::format("<svg viewBox=\"0 0 {} {}\" width=\"{}\" role=\"img\">", kWidth, kHeight, kWidth);
  for (size_t s = 0; s < series.size(); ++s) {
    std::string points;
    for (size_t i = 0; i < series[s].size(); ++i) {
      if (!std::isfinite(series[s][i])) continue;
      const double x = kMargin + (kWidth - 2 * kMargin) * static_cast<double>(i) /
                                     static_cast<double>(e.length - 1);
      const double y =
          kHeight - kMargin - (kHeight - 2 * kMargin) * (series[s][i] - e.low) / (e.high - e.low);
      points += fmt::format("{:.1f},{:.1f} ", x, y);
    }
    const std::string_view colour = kColours[s % kColours.size()];
    body_ += fmt::format(
        "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" points=\"{}\"/>"
        "<text x=\"{}\" y=\"16\" fill=\"{}\" font-size=\"13\">{}</text>",
        colour, s == 0 ? 5 : 2, points, kMargin + 200 * static_cast<double>(s), colour,
        s < names.size() ? escape_html(names[s]) : "");
  }
  body_ += fmt::format("<text x=\"0\" y=\"{}\" font-size=\"11\">{:.4g}</text>", kMargin, e.high);
  body_ += fmt::format("<text x=\"0\" y=\"{}\" font-size=\"11\">{:.4g}</text></svg>\n",
                       kHeight - kMargin, e.low);
}

std::string Page::html() const {
  const std::string title = escape_html(title_);
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title><style>{}"
      "</style></head><body>\n<h1>{}</h1>\n{}</body></html>\n",
      title, kStyle, title, body_);
}

}  // namespace mt::prove
