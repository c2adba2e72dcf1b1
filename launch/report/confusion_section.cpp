#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "launch/report/sections.h"
#include "runtime/base/utf8.h"
#include "runtime/data/images/image_file.h"
#include "runtime/files/data_file.h"

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

/// A row for each class, by number and name. Columns have the beginnings of the names, so that ten
/// fit a terminal, or the numbers where beginnings are missing or equal.
CaptionedTable matrix_table(const Json& matrix, const Json& classes) {
  constexpr size_t kMostBytes = 4;
  CaptionedTable table{"Samples by label (rows) and predicted class (columns)", {{"label"}}};
  std::set<std::string> begins;
  for (size_t label = 0; label < matrix.size(); ++label) {
    const std::string number = std::to_string(label);
    const std::string name = classes.at(label).value("class_name", "");
    const std::string begin = name.substr(0, check_utf8(name.substr(0, kMostBytes)).valid);
    if (!begin.empty()) begins.insert(begin);
    table.rows[0].push_back(begin);
    auto& row = table.rows.emplace_back();
    row.push_back(name.empty() ? number : number + " " + name);
    for (const Json& count : matrix.at(label)) row.push_back(count.dump());
    row.resize(1 + matrix.size());
  }
  for (size_t label = 0; label < matrix.size() && begins.size() < matrix.size(); ++label) {
    table.rows[0][label + 1] = std::to_string(label);
  }
  return table;
}

/// Pictures of the mistakes whose image files can be read, at most `kSide` pixels wide and high.
Json thumbnails(const RunData& run) {
  constexpr int64_t kSide = 64, kShownWidth = 96;
  Json pictures = Json::array();
  for (const Json& mistake : run.confusion.at("mistakes")) {
    const std::string file = mistake.value("file", "");
    try {
      const std::string bytes = text_of_file(file);
      DecodedImage image = decode_image(std::as_bytes(std::span(bytes)), file, kSide);
      const ImageShape& shape = image.shape;
      const torch::Tensor pixel_CHW =
          torch::from_blob(image.pixel_CHW.data(), {3, shape.height, shape.width}, torch::kUInt8);
      const int64_t factor = (std::max(shape.height, shape.width) + kSide - 1) / kSide;
      const Picture small = picture_of(at::avg_pool2d(pixel_CHW.to(torch::kFloat64) / 255, factor));
      const Json as_class = mistake.at("label"), as_other = mistake.at("predicted");
      const std::string caption =
          fmt::format("{}: {} taken for {}, {:.2f}%", mistake.at("sample").dump(),
                      mistake.value("label_name", as_class.dump()),
                      mistake.value("predicted_name", as_other.dump()),
                      100 * mistake.at("probability").get<double>());
      pictures.push_back(
          {{"images", Json::array({Json{
                          {"src", png_address(small)}, {"alt", file}, {"width", kShownWidth}}})},
           {"caption", caption}});
    } catch (const Error&) {  // moved, or of a data set without files: the table has its name
    }
  }
  return pictures;
}

}  // namespace

std::vector<CaptionedTable> confusion_tables(const Json& confusion) {
  std::vector<CaptionedTable> tables{table_of("Classes", confusion.at("classes"))};
  const Json& matrix = confusion.at("matrix");
  if (matrix.size() <= kMostMatrixClasses) {
    tables.push_back(matrix_table(matrix, confusion.at("classes")));
  }
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
      report.page.add({{"paragraph", fmt::format("By the checkpoint of step {}.", step)}});
      for (const CaptionedTable& table : tables) report.page.add_table(table);
      const Json pictures = thumbnails(run);
      if (!pictures.empty()) report.page.add({{"pictures", pictures}});
    } catch (const Json::exception&) {
      report.page.add(
          {{"paragraph", "confusion.json: not as `shoal eval --confusion` writes it, left out."}});
    }
  }
}

}  // namespace shoal
