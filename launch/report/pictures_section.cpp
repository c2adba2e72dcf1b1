#include <fmt/format.h>

#include <algorithm>

#include "launch/report/known_metrics.h"
#include "launch/report/sections.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kShownSide = 128;  ///< of small pictures, in the page's pixels

/// Table of the numbers below pictures: a row per sample, a column per kind of picture.
CaptionedTable picture_numbers(const SampleSheet& sheet) {
  CaptionedTable table{"Numbers of the pictures, by row", {{"sample"}}};
  for (int64_t sample = 1; sample <= sheet.samples; ++sample) {
    table.rows.push_back({std::to_string(sample)});
  }
  for (const SampleSheet::Column& column : sheet.columns) {
    if (column.numbers.empty()) continue;
    table.rows[0].push_back(fmt::format("{}, {}", column.name, column.number));
    for (size_t sample = 0; sample < column.numbers.size(); ++sample) {
      table.rows[sample + 1].push_back(value_text(column.numbers[sample], Quantity::kPlain));
    }
  }
  return table;
}

Json picture_of_sheet(const RunPictures& pictures) {
  const SampleSheet& sheet = pictures.sheet;
  std::vector<std::string> names;
  for (const SampleSheet::Column& column : sheet.columns) names.push_back(column.name);
  const int64_t side = std::max<int64_t>(1, pictures.width / std::ssize(names));
  const Json image{{"src", png_address(pictures.png)},
                   {"alt", fmt::format("{}, a row each. From the left: {}.",
                                       counted(sheet.samples, "sample"), join_words(names))},
                   {"width", pictures.width * std::max<int64_t>(1, kShownSide / side)}};
  return {{"heads", names},
          {"gap", 100.0 * SampleSheet::kGap / static_cast<double>(pictures.width)},
          {"caption",
           fmt::format("At step {}: the first {} of the validation data{}",
                       grouped(static_cast<double>(sheet.step)), counted(sheet.samples, "sample"),
                       sheet.shrunk_by > 1
                           ? fmt::format(", shrunk to 1/{} of their sides", sheet.shrunk_by)
                           : "")},
          {"images", Json::array({image})}};
}

}  // namespace

void add_pictures(const Report& report) {
  report.page.begin_section("pictures", "Pictures of samples");
  for (const RunData& run : report.runs) {
    if (!run.pictures) continue;
    report.name_run(run);
    report.page.add({{"pictures", Json::array({picture_of_sheet(*run.pictures)})}});
    const CaptionedTable numbers = picture_numbers(run.pictures->sheet);
    if (numbers.rows[0].size() > 1) report.page.add_table(numbers);
  }
}

}  // namespace shoal
