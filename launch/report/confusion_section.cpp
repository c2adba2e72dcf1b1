#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "launch/report/sections.h"

namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostMatrixClasses = 30;

/// A row for each object of a list and a column for each of its keys; shares as percentages.
CaptionedTable table_of(const std::string& caption, const Json& list) {
  CaptionedTable table{caption, {{}}};
  for (const auto& [key, value] : list.at(0).items()) table.rows[0].push_back(key);
  for (const Json& entry : list) {
    auto& row = table.rows.emplace_back();
    for (const auto& [key, value] : entry.items()) {
      row.push_back(value.is_string()         ? value.get<std::string>()
                    : value.is_number_float() ? fmt::format("{:.2f}%", 100 * value.get<double>())
                                              : value.dump());
    }
    row.resize(table.rows[0].size());
  }
  return table;
}

CaptionedTable matrix_table(const Json& matrix) {
  Json list = Json::array();
  for (const auto& [label, counts] : matrix.items()) {
    Json& row = list.emplace_back(Json{{"label", label}});
    for (const auto& [predicted, count] : counts.items()) row[predicted] = count;
  }
  return table_of("Samples by label (rows) and predicted class (columns)", list);
}

}  // namespace

std::vector<CaptionedTable> confusion_tables(const Json& confusion) {
  std::vector<CaptionedTable> tables{table_of("Classes", confusion.at("classes"))};
  const Json& matrix = confusion.at("matrix");
  if (matrix.size() <= kMostMatrixClasses) tables.push_back(matrix_table(matrix));
  for (const auto& [key, caption] :
       {std::pair{"worst", "Most frequent confusions"}, {"mistakes", "Most confident mistakes"}}) {
    if (!confusion.at(key).empty()) tables.push_back(table_of(caption, confusion.at(key)));
  }
  return tables;
}

void add_confusion(const Report& report) {
  report.page.begin_section("confusion", "Confusions of classes");
  for (const RunData& run : report.runs) {
    if (run.confusion.empty()) continue;
    try {
      const std::vector<CaptionedTable> tables = confusion_tables(run.confusion);
      const auto step = run.confusion.at("step").get<int64_t>();
      report.name_run(run);
      report.page.add({{"text", fmt::format("By the checkpoint of step {}.", step)}});
      for (const CaptionedTable& table : tables) report.page.add_table(table);
    } catch (const Json::exception&) {
      report.page.add(
          {{"text", "confusion.json: not as `shoal eval --confusion` writes it, left out."}});
    }
  }
}

}  // namespace shoal
