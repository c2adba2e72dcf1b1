#include <fmt/format.h>

#include <algorithm>

#include "launch/pages/page.h"
#include "launch/report/known_metrics.h"
#include "launch/report/sections.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

constexpr int64_t kShownSide = 128;  ///< of small pictures, in the page's pixels

std::vector<std::string> names_of(const SampleSheet& sheet) {
  std::vector<std::string> names;
  for (const SampleSheet::Column& column : sheet.columns) names.push_back(column.name);
  return names;
}

/// Table of the numbers below pictures: a row per sample, a column per kind of picture.
std::string picture_numbers(const SampleSheet& sheet) {
  std::vector<std::string> heads{"sample"};
  for (const SampleSheet::Column& column : sheet.columns) {
    if (!column.numbers.empty()) heads.push_back(fmt::format("{}, {}", column.name, column.number));
  }
  if (heads.size() == 1) return "";
  std::string rows;
  for (size_t sample = 0; sample < static_cast<size_t>(sheet.samples); ++sample) {
    std::vector<std::string> cells;
    for (const SampleSheet::Column& column : sheet.columns) {
      if (column.numbers.empty()) continue;
      cells.push_back(sample < column.numbers.size()
                          ? value_text(column.numbers[sample], Quantity::kPlain)
                          : "-");
    }
    rows += page_row(std::to_string(sample + 1), cells);
  }
  return page_table("Numbers of the pictures, by row", heads, rows);
}

/// Description of a sheet for screen readers.
std::string sheet_description(const SampleSheet& sheet) {
  std::string text = fmt::format("{}, a row each. From the left: {}.",
                                 counted(sheet.samples, "sample"), join_words(names_of(sheet)));
  for (const SampleSheet::Column& column : sheet.columns) {
    if (column.numbers.empty()) continue;
    const auto [least, most] = std::ranges::minmax(column.numbers);
    text += fmt::format(" {} of {}: {} to {}.", column.number, column.name,
                        value_text(least, Quantity::kPlain), value_text(most, Quantity::kPlain));
  }
  return text;
}

std::string pictures_html(const RunPictures& pictures) {
  const SampleSheet& sheet = pictures.sheet;
  const auto columns = std::ssize(sheet.columns);
  const int64_t side = std::max<int64_t>(1, pictures.width / columns);
  const int64_t shown_width = pictures.width * std::max<int64_t>(1, kShownSide / side);
  // Column titles stay above their pictures at any width.
  const double gap = 100.0 * SampleSheet::kGap / static_cast<double>(pictures.width);
  std::string heads = fmt::format(
      "<div class=\"heads\" aria-hidden=\"true\" style=\"grid-template-columns:repeat({},"
      "minmax(0,1fr));column-gap:{:.4g}%\">",
      columns, gap);
  for (const std::string& name : names_of(sheet)) {
    heads += fmt::format("<span>{}</span>", xml_text(name));
  }
  const std::string caption = fmt::format(
      "At step {}: the first {} of the validation data{}", grouped(sheet.step),
      counted(sheet.samples, "sample"),
      sheet.shrunk_by > 1 ? fmt::format(", shrunk to 1/{} of their sides", sheet.shrunk_by) : "");
  return fmt::format(
             "<figure class=\"sheet\" "
             "style=\"max-width:{}px\"><figcaption>{}</figcaption>\n{}</div>"
             "\n<img alt=\"{}\" width=\"{}\" height=\"{}\" src=\"{}\"></figure>\n",
             shown_width, caption, heads, xml_text(sheet_description(sheet)), pictures.width,
             pictures.height, png_address(pictures.png)) +
         picture_numbers(sheet);
}

}  // namespace

Section pictures_section(const Runs& runs) {
  std::string html;
  for (const RunData& run : runs) {
    if (run.pictures) html += with_heading(run, runs, pictures_html(*run.pictures));
  }
  return {"pictures", "Pictures of samples", html};
}

}  // namespace shoal
