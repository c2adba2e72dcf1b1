#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "launch/pages/page.h"
#include "launch/report/known_metrics.h"
#include "launch/report/sections.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kStarts = "starts";  ///< of env.json

std::string plain_text_of(const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Text of a list; a repeated item is shown once, with its count.
std::string list_text(const Json& list) {
  std::vector<std::pair<std::string, int64_t>> counts;
  for (const Json& item : list) {
    const std::string text = plain_text_of(item);
    const auto found = std::ranges::find(counts, text, &std::pair<std::string, int64_t>::first);
    if (found == counts.end()) {
      counts.emplace_back(text, 1);
    } else {
      ++found->second;
    }
  }
  std::string text;
  for (const auto& [item, count] : counts) {
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", item,
                        count > 1 ? fmt::format(" ({} times)", count) : "");
  }
  return text;
}

std::string command_text(const Json& command) {
  if (!command.is_array()) return plain_text_of(command);
  std::vector<std::string> words;
  for (const Json& word : command) words.push_back(plain_text_of(word));
  return join_words(words, " ");
}

using Texts = std::vector<std::pair<std::string, std::string>>;

void flatten_into(Texts& texts, const Json& json, const std::string& before) {
  for (const auto& [key, value] : json.items()) {
    if (key == kStarts) continue;
    std::string name = before + key;
    std::ranges::replace(name, '_', ' ');
    if (value.is_object()) {
      flatten_into(texts, value, name + ": ");
    } else if (key == "command") {
      texts.emplace_back(name, command_text(value));
    } else {
      texts.emplace_back(name, value.is_array() ? list_text(value) : plain_text_of(value));
    }
  }
}

std::vector<std::string> run_columns(const char* first, const Runs& runs) {
  std::vector<std::string> columns{first};
  for (const RunData& run : runs) columns.push_back(runs.size() > 1 ? run.name : "value");
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

std::string checkpoint_rows(const RunData& run) {
  std::string rows;
  for (const CheckpointFacts& checkpoint : run.checkpoints) {
    const std::string step = grouped(checkpoint.step);
    if (!checkpoint.damage.empty()) {
      rows += page_row(step, {"", "", "damaged: " + xml_text(checkpoint.damage)});
      continue;
    }
    rows += page_row(step,
                     {checkpoint.score ? value_text(*checkpoint.score, Quantity::kPlain) : "-",
                      value_text(static_cast<double>(checkpoint.bytes), Quantity::kBytes), "good"});
  }
  return rows;
}

std::string start_rows(const RunData& run) {
  std::string rows;
  for (const Json& start : starts_of(run)) {
    const auto text = [&](const char* key) {
      const auto found = start.find(key);
      return found == start.end() ? std::string("-") : xml_text(command_text(*found));
    };
    rows += page_row(grouped(start["step"].get<double>()),
                     {text("time"), text("world"), text("command")});
  }
  return rows;
}

std::string value_of(const RunData& run, const std::string& path) {
  const auto found = std::ranges::find(run.recipe, path, &RecipeValue::path);
  return found == run.recipe.end() ? "-" : found->text;
}

std::string differences_table(const Runs& runs) {
  std::vector<std::string> paths;
  std::set<std::string> known;
  for (const RunData& run : runs) {
    for (const RecipeValue& value : run.recipe) {
      if (known.insert(value.path).second) paths.push_back(value.path);
    }
  }
  std::string rows;
  for (const std::string& path : paths) {
    std::vector<std::string> cells;
    for (const RunData& run : runs) cells.push_back(xml_text(value_of(run, path)));
    if (std::ranges::count(cells, cells.front()) == std::ssize(cells)) continue;
    rows += page_row(xml_text(path), cells);
  }
  if (rows.empty()) return "<p>The recipes are equal.</p>\n";
  return page_table("Keys whose values differ", run_columns("key", runs), rows);
}

std::string recipe_table(const std::string& caption, const RunData& run, bool defaults) {
  std::string rows;
  for (const RecipeValue& value : run.recipe) {
    if ((value.origin == "default") != defaults) continue;
    std::vector<std::string> cells{xml_text(value.text)};
    if (!defaults) cells.push_back(xml_text(value.origin.empty() ? "-" : value.origin));
    rows += page_row(xml_text(value.path), cells);
  }
  if (rows.empty()) return "";
  std::vector<std::string> columns{"key", "value"};
  if (!defaults) columns.emplace_back("written in");
  return page_table(caption, columns, rows);
}

std::string recipe_html(const RunData& run, const std::string& name) {
  std::string set = recipe_table("Keys that were set" + name, run, false);
  const std::string defaults = recipe_table("Keys at their defaults" + name, run, true);
  if (!defaults.empty()) {
    set += fmt::format("<details><summary>Keys at their defaults{}</summary>\n{}</details>\n",
                       xml_text(name), defaults);
  }
  return set;
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

Section checkpoints_section(const Runs& runs) {
  std::string html;
  for (const RunData& run : runs) {
    const std::string of = runs.size() > 1 ? " of " + run.name : "";
    if (const std::string rows = checkpoint_rows(run); !rows.empty()) {
      html += page_table("Checkpoints" + of, {"step", "score, larger is better", "size", "state"},
                         rows);
    }
    if (const std::string rows = start_rows(run); !rows.empty()) {
      html += page_table("Starts" + of + "; those after step 0 resumed it",
                         {"from step", "time", "ranks", "command"}, rows);
    }
  }
  return {"checkpoints", "Checkpoints and starts", html};
}

Section recipe_section(const Runs& runs) {
  if (runs.size() == 1) return {"recipe", "Recipe", recipe_html(runs.front(), "")};
  std::string html;
  for (const RunData& run : runs) {
    if (run.recipe.empty()) continue;
    html += fmt::format("<details><summary>Recipe of {}</summary>\n{}</details>\n",
                        xml_text(run.name), recipe_html(run, ", " + run.name));
  }
  return {"recipe", "Recipe", html.empty() ? "" : differences_table(runs) + html};
}

Section environment_section(const Runs& runs) {
  std::vector<Texts> of_run;
  std::vector<std::string> names;
  for (const RunData& run : runs) {
    flatten_into(of_run.emplace_back(), run.env, "");
    for (const auto& [name, text] : of_run.back()) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  std::string rows;
  for (const std::string& name : names) {
    std::vector<std::string> cells;
    for (const Texts& texts : of_run) {
      const auto found = std::ranges::find(texts, name, &Texts::value_type::first);
      cells.push_back(found == texts.end() ? "-" : xml_text(found->second));
    }
    rows += page_row(xml_text(name), cells);
  }
  return {"environment", "Environment",
          rows.empty() ? "" : page_table("Environment", run_columns("", runs), rows)};
}

}  // namespace shoal
