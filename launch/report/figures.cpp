#include "launch/report/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "runtime/base/text.h"

namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

/// The value with as many digits as a picture shows. One that is not finite stays so, and becomes
/// null in JSON.
double rounded(double value, int digits) {
  return std::strtod(fmt::format("{:.{}g}", value, digits).c_str(), nullptr);
}

std::string at_step(const Curve::Point& point, Quantity quantity) {
  return fmt::format("{} at {}", value_text(point.value, quantity), grouped(point.step));
}

Json line_json(Page& page, const FigureLine& line, size_t most_points) {
  const Curve& curve = *line.curve;
  const bool is_whole = curve.is_whole() && curve.buckets().size() <= most_points;
  Json json{{"name", line.name}, {"run", line.run}, {"steps", 0}, {"y", Json::array()}};
  if (line.is_evaluation) json["has_points"] = true;
  std::vector<double> steps;
  for (const Curve::Bucket& bucket :
       is_whole ? curve.buckets()
                : joined_buckets(curve.buckets(), std::max<size_t>(1, most_points / 3))) {
    steps.push_back(is_whole ? bucket.last_step : (bucket.first_step + bucket.last_step) / 2);
    json["y"].push_back(is_whole ? bucket.mean() : rounded(bucket.mean(), 6));
    if (is_whole) continue;
    json["low"].push_back(rounded(bucket.low, 6));
    json["high"].push_back(rounded(bucket.high, 6));
  }
  json["steps"] = page.steps_index(steps);
  return json;
}

const char* name_of(Quantity quantity) {
  if (quantity == Quantity::kPlain) return "plain";
  return quantity == Quantity::kShare ? "share" : "bytes";
}

Json table_json(const std::string& title, const TableRows& rows) {
  return {{"caption", title + " in numbers"}, {"rows", rows}, {"folded", true}};
}

std::vector<std::string> table_row(const HeatRow& row, Quantity quantity) {
  std::vector<double> values;
  std::ranges::copy_if(row.value, std::back_inserter(values),
                       [](double value) { return std::isfinite(value); });
  if (values.empty()) return {row.name, "-", "-", "-", "-"};
  const auto [least, most] = std::ranges::minmax(values);
  return {row.name, value_text(values.front(), quantity), value_text(least, quantity),
          value_text(most, quantity), value_text(values.back(), quantity)};
}

}  // namespace

bool CurveFigure::is_constant() const {
  const double value = lines.front().curve->last().value;
  return std::ranges::all_of(lines, [value](const FigureLine& line) {
    return line.curve->is_constant() && line.curve->last().value == value;
  });
}

void add_line(std::vector<CurveFigure>& figures, const FigureLine& line) {
  if (line.curve->num_finite() == 0) return;
  const std::string& key = line.curve->key();
  if (std::ranges::find(figures, key, &CurveFigure::key) == figures.end()) {
    figures.push_back({key, metric_info(key)});
  }
  std::ranges::find(figures, key, &CurveFigure::key)->lines.push_back(line);
}

std::vector<Curve::Bucket> joined_buckets(const std::vector<Curve::Bucket>& buckets, size_t most) {
  const size_t each = (buckets.size() + most - 1) / most;
  std::vector<Curve::Bucket> result;
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (i % each == 0) {
      result.push_back(buckets[i]);
    } else {
      result.back().join(buckets[i]);
    }
  }
  return result;
}

void add_curves(Page& page, const CurveFigure& figure, size_t most_points) {
  const Quantity quantity = figure.info.quantity;
  TableRows rows{{"curve", "values", "first", "lowest", "highest", "last", "not finite"}};
  Json lines = Json::array();
  for (const FigureLine& line : figure.lines) {
    const Curve& curve = *line.curve;
    lines.push_back(line_json(page, line, most_points));
    rows.push_back({line.name, grouped(static_cast<double>(curve.num_finite())),
                    at_step(curve.first(), quantity), at_step(curve.lowest(), quantity),
                    at_step(curve.highest(), quantity), at_step(curve.last(), quantity),
                    grouped(static_cast<double>(curve.num_not_finite()))});
  }
  page.add({{"curves",
             {{"title", figure.info.label},
              {"quantity", name_of(quantity)},
              {"by_run", figure.is_by_run},
              {"lines", lines}}},
            {"table", table_json(figure.info.label, rows)}});
}

void add_heat(Page& page, const HeatFigure& figure) {
  TableRows rows{{"row", "first", "lowest", "highest", "last"}};
  Json drawn = Json::array();
  for (const HeatRow& row : figure.rows) {
    rows.push_back(table_row(row, figure.quantity));
    Json values = Json::array();
    for (const double value : row.value) values.push_back(rounded(value, 4));
    drawn.push_back({{"label", row.label},
                     {"name", row.name},
                     {"begins", page.steps_index(row.begin)},
                     {"ends", page.steps_index(row.end)},
                     {"values", values}});
  }
  page.add({{"heat",
             {{"title", figure.title},
              {"quantity", name_of(figure.quantity)},
              {"run", figure.run},
              {"palette", figure.is_load ? "load" : "viridis"},
              {"logarithmic", figure.is_logarithmic},
              {"low", figure.low},
              {"high", figure.high},
              {"split", figure.split},
              {"note", figure.note},
              {"rows", drawn}}},
            {"table", table_json(figure.title, rows)}});
}

}  // namespace shoal
