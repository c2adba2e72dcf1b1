#include <fmt/format.h>

#include <algorithm>

#include "launch/report/known_metrics.h"
#include "launch/report/sections.h"
#include "runtime/base/json_text.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kStarts = "starts";  ///< of env.json

/// The text of a value. Items of a list are separated by blanks; equal neighbours are written once,
/// with their count.
std::string text_of(const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  if (!json.is_array()) return json_text(json);
  std::vector<std::string> words;
  for (size_t i = 0, next = 0; i < json.size(); i = next) {
    while (next < json.size() && json[next] == json[i]) ++next;
    words.push_back(text_of(json[i]));
    if (next > i + 1) words.push_back(fmt::format("({} times)", next - i));
  }
  return join_words(words, " ");
}

/// Texts of one run, with their names.
using Texts = std::vector<std::pair<std::string, std::string>>;

void flatten_into(Texts& texts, const Json& json, const std::string& before) {
  for (const auto& [key, value] : json.items()) {
    if (key == kStarts) continue;
    const std::string name = before + key;
    if (value.is_object()) {
      flatten_into(texts, value, name + ".");
    } else {
      texts.emplace_back(name, text_of(value));
    }
  }
}

/// A row for each name, with a column for each run; "-" where a run has no text of this name.
TableRows rows_of(const char* head, const Report& report, const std::vector<Texts>& of_run) {
  TableRows rows{{head}};
  for (size_t run = 0; run < of_run.size(); ++run) {
    rows[0].push_back(report.is_comparison() ? report.runs[run].name : "value");
    for (const Texts::value_type& text : of_run[run]) {
      auto row = std::find_if(rows.begin() + 1, rows.end(),
                              [&](const auto& cells) { return cells.front() == text.first; });
      if (row == rows.end()) {
        row = rows.emplace(row, 1 + of_run.size(), "-");
        row->front() = text.first;
      }
      (*row)[1 + run] = text.second;
    }
  }
  return rows;
}

std::vector<Json> starts_of(const RunData& run) {
  std::vector<Json> starts;
  for (const Json& start : run.env.value(kStarts, Json())) {
    if (start.is_object() && start.value("step", Json()).is_number()) starts.push_back(start);
  }
  return starts;
}

TableRows checkpoint_rows(const RunData& run) {
  TableRows rows{{"step", "score, larger is better", "size", "state"}};
  for (const CheckpointFacts& checkpoint : run.checkpoints) {
    const std::string step = grouped(static_cast<double>(checkpoint.step));
    if (!checkpoint.damage.empty()) {
      rows.push_back({step, "", "", "damaged: " + checkpoint.damage});
      continue;
    }
    rows.push_back({step, checkpoint.score ? value_text(*checkpoint.score, Quantity::kPlain) : "-",
                    value_text(static_cast<double>(checkpoint.bytes), Quantity::kBytes), "good"});
  }
  return rows;
}

TableRows start_rows(const RunData& run) {
  TableRows rows{{"from step", "time", "ranks", "command"}};
  for (const Json& start : starts_of(run)) {
    const auto text = [&](const char* key) { return text_of(start.value(key, Json("-"))); };
    rows.push_back(
        {grouped(start["step"].get<double>()), text("time"), text("world"), text("command")});
  }
  return rows;
}

/// Adds a table that has more than its head.
void add_rows(const Report& report, const std::string& caption, const TableRows& rows,
              bool is_folded = false) {
  if (rows.size() > 1) report.page.add_table({caption, rows}, is_folded);
}

/// Adds the keys whose values differ between runs.
void add_differences(const Report& report) {
  std::vector<Texts> of_run;
  for (const RunData& run : report.runs) {
    Texts& texts = of_run.emplace_back();
    for (const RecipeValue& value : run.recipe) texts.emplace_back(value.path, value.text);
  }
  TableRows rows = rows_of("key", report, of_run);
  const bool has_keys = rows.size() > 1;
  const auto are_equal = [](const auto& cells) {
    return std::count(cells.begin() + 1, cells.end(), cells[1]) == std::ssize(cells) - 1;
  };
  rows.erase(std::remove_if(rows.begin() + 1, rows.end(), are_equal), rows.end());
  add_rows(report, "Keys whose values differ", rows);
  if (rows.size() == 1 && has_keys) report.page.add({{"paragraph", "The recipes are equal."}});
}

void add_recipe(const Report& report, const RunData& run) {
  TableRows set{{"key", "value", "set in"}}, defaults{{"key", "value"}};
  for (const RecipeValue& value : run.recipe) {
    if (value.origin == "default") {
      defaults.push_back({value.path, value.text});
    } else {
      set.push_back({value.path, value.text, value.origin.empty() ? "-" : value.origin});
    }
  }
  const std::string of = report.is_comparison() ? " in " + run.name : "";
  add_rows(report, "Keys that were set" + of, set, report.is_comparison());
  add_rows(report, "Keys at their defaults" + of, defaults, /*is_folded=*/true);
}

void add_environment(const Report& report) {
  std::vector<Texts> of_run;
  for (const RunData& run : report.runs) flatten_into(of_run.emplace_back(), run.env, "");
  add_rows(report, "Environment", rows_of("", report, of_run));
}

}  // namespace

std::vector<double> resumed_steps(const RunData& run) {
  std::vector<double> steps;
  for (const Json& start : starts_of(run)) {
    const double step = start["step"].get<double>();
    // A resume drops everything after its step, including earlier resumes.
    std::erase_if(steps, [step](double earlier) { return earlier >= step; });
    if (step > 0) steps.push_back(step);
  }
  return steps;
}

std::string recipe_value(const RunData& run, const std::string& path) {
  const auto found = std::ranges::find(run.recipe, path, &RecipeValue::path);
  return found == run.recipe.end() ? "" : found->text;
}

void add_records(const Report& report) {
  report.page.begin_section("checkpoints", "Checkpoints and starts");
  for (const RunData& run : report.runs) {
    const std::string of = report.is_comparison() ? " of " + run.name : "";
    add_rows(report, "Checkpoints" + of, checkpoint_rows(run));
    add_rows(report, "Starts" + of + "; those after step 0 are resumptions", start_rows(run));
  }
  report.page.begin_section("recipe", "Recipe");
  if (report.is_comparison()) add_differences(report);
  for (const RunData& run : report.runs) add_recipe(report, run);
  report.page.begin_section("environment", "Environment");
  add_environment(report);
}

}  // namespace shoal
