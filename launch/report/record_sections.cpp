#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "launch/report/known_metrics.h"
#include "launch/report/sections.h"
#include "runtime/base/json_text.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kStarts = "starts";  ///< of env.json

std::string text_of(const Json& json) {
  return json.is_string() ? json.get<std::string>() : json_text(json);
}

/// Text of a list, between its items a blank; a repeated item is shown once, with its count.
std::string list_text(const Json& list) {
  std::vector<std::string> words;
  for (size_t i = 0, next = 0; i < list.size(); i = next) {
    while (next < list.size() && list[next] == list[i]) ++next;
    words.push_back(text_of(list[i]));
    if (next > i + 1) words.push_back(fmt::format("({} times)", next - i));
  }
  return join_words(words, " ");
}

using Texts = std::vector<std::pair<std::string, std::string>>;

void flatten_into(Texts& texts, const Json& json, const std::string& before) {
  for (const auto& [key, value] : json.items()) {
    if (key == kStarts) continue;
    const std::string name = before + key;
    if (value.is_object()) {
      flatten_into(texts, value, name + ".");
    } else {
      texts.emplace_back(name, value.is_array() ? list_text(value) : text_of(value));
    }
  }
}

using Rows = std::vector<std::vector<std::string>>;

std::vector<std::string> run_columns(const char* first, const Report& report) {
  std::vector<std::string> columns{first};
  for (const RunData& run : report.runs) {
    columns.push_back(report.is_comparison() ? run.name : "value");
  }
  return columns;
}

std::vector<Json> starts_of(const RunData& run) {
  std::vector<Json> starts;
  const auto found = run.env.find(kStarts);
  if (found == run.env.end() || !found->is_array()) return starts;
  for (const Json& start : *found) {
    if (start.is_object() && start.value("step", Json()).is_number()) starts.push_back(start);
  }
  return starts;
}

Rows checkpoint_rows(const RunData& run) {
  Rows rows{{"step", "score, larger is better", "size", "state"}};
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

Rows start_rows(const RunData& run) {
  Rows rows{{"from step", "time", "ranks", "command"}};
  for (const Json& start : starts_of(run)) {
    const auto text = [&](const char* key) {
      const auto found = start.find(key);
      if (found == start.end()) return std::string("-");
      return found->is_array() ? list_text(*found) : text_of(*found);
    };
    rows.push_back(
        {grouped(start["step"].get<double>()), text("time"), text("world"), text("command")});
  }
  return rows;
}

/// Adds a table that has more than its head.
void add_rows(const Report& report, const std::string& caption, const Rows& rows,
              bool is_folded = false) {
  if (rows.size() > 1) report.page.add_table({caption, rows}, is_folded);
}

/// Adds the keys whose values differ between runs.
void add_differences(const Report& report) {
  std::vector<std::string> paths;
  std::set<std::string> known;
  for (const RunData& run : report.runs) {
    for (const RecipeValue& value : run.recipe) {
      if (known.insert(value.path).second) paths.push_back(value.path);
    }
  }
  Rows rows{run_columns("key", report)};
  for (const std::string& path : paths) {
    std::vector<std::string> cells;
    for (const RunData& run : report.runs) {
      const std::string value = recipe_value(run, path);
      cells.push_back(value.empty() ? "-" : value);
    }
    if (std::ranges::count(cells, cells.front()) == std::ssize(cells)) continue;
    cells.insert(cells.begin(), path);
    rows.push_back(std::move(cells));
  }
  add_rows(report, "Keys whose values differ", rows);
  if (rows.size() == 1 && !paths.empty())
    report.page.add({{"paragraph", "The recipes are equal."}});
}

void add_recipe(const Report& report, const RunData& run) {
  Rows set{{"key", "value", "written in"}}, defaults{{"key", "value"}};
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
  std::vector<std::string> names;
  for (const RunData& run : report.runs) {
    flatten_into(of_run.emplace_back(), run.env, "");
    for (const auto& [name, text] : of_run.back()) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  Rows rows{run_columns("", report)};
  for (const std::string& name : names) {
    std::vector<std::string>& cells = rows.emplace_back(std::vector{name});
    for (const Texts& texts : of_run) {
      const auto found = std::ranges::find(texts, name, &Texts::value_type::first);
      cells.push_back(found == texts.end() ? "-" : found->second);
    }
  }
  add_rows(report, "Environment", rows);
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
    add_rows(report, "Starts" + of + "; those after step 0 resumed it", start_rows(run));
  }
  report.page.begin_section("recipe", "Recipe");
  if (report.is_comparison()) add_differences(report);
  for (const RunData& run : report.runs) add_recipe(report, run);
  report.page.begin_section("environment", "Environment");
  add_environment(report);
}

}  // namespace shoal
