// Pages that show a result: one HTML file that needs nothing else, readable without scripts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mt::prove {

std::string escape_html(std::string_view text);

class Page {
 public:
  explicit Page(std::string title) : title_(std::move(title)) {}

  void heading(std::string_view text);
  void paragraph(std::string_view text);
  void preformatted(std::string_view text);
  // Every row has as many cells as `head`. Columns of `numbers` are set to the right.
  void table(const std::vector<std::string>& head,
             const std::vector<std::vector<std::string>>& rows,
             const std::vector<size_t>& numbers = {});
  // A line chart of several series over 0, 1, 2, ...; values that are not finite are left out.
  void chart(const std::vector<std::string>& names, const std::vector<std::vector<double>>& series);
  std::string html() const;

 private:
  std::string title_, body_;
};

}  // namespace mt::prove
