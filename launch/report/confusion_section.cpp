#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "launch/pages/page.h"
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

std::string confusion_html(const Json& confusion) {
  std::string html = fmt::format("<p class=\"hint\">By the checkpoint of step {}.</p>\n",
                                 confusion.at("step").get<int64_t>());
  for (const CaptionedTable& table : confusion_tables(confusion)) {
    std::string rows;
    for (size_t i = 1; i < table.rows.size(); ++i) {
      std::vector<std::string> cells;
      for (const std::string& cell : table.rows[i]) cells.push_back(xml_text(cell));
      rows += page_row(cells.at(0), {cells.begin() + 1, cells.end()});
    }
    html += page_table(table.caption, table.rows[0], rows);
  }
  return html;
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

Section confusion_section(const Runs& runs) {
  std::string html;
  for (const RunData& run : runs) {
    if (run.confusion.empty()) continue;
    try {
      html += with_heading(run, runs, confusion_html(run.confusion));
    } catch (const Json::exception&) {
      html += "<p>confusion.json: not as `shoal eval --confusion` writes it, left out.</p>\n";
    }
  }
  return {"confusion", "Confusions of classes", html};
}

}  // namespace shoal
