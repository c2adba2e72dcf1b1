#include <fmt/format.h>

#include <algorithm>

#include "launch/report/known_metrics.h"
#include "launch/report/sections.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

template <class Value>
std::optional<Value> find_value(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) return std::nullopt;
  const bool fits = std::is_same_v<Value, std::string> ? found->is_string() : found->is_number();
  return fits ? std::optional(found->template get<Value>()) : std::nullopt;
}

bool has_current_summary(const RunData& run) {
  const auto steps = find_value<double>(run.summary, "steps");
  return steps && *steps >= run.last_step;
}

std::string state_of(const RunData& run) {
  if (run.summary.empty()) return "in progress, or ended without a summary";
  if (!has_current_summary(run)) return "resumed, in progress or ended without a summary";
  const auto code = find_value<int>(run.summary, "exit_code");
  if (!code) return "ended";
  switch (static_cast<ExitCode>(*code)) {
    case ExitCode::kOk:
      return "finished";
    case ExitCode::kPreempted:
      return "stopped, the state is saved; can be resumed";
    case ExitCode::kNumeric:
      return "ended with a loss or score that is not finite";
    default:
      return fmt::format("ended with exit code {}", *code);
  }
}

std::string steps_of(const RunData& run) {
  return grouped(std::max(run.last_step, find_value<double>(run.summary, "steps").value_or(0)));
}

std::string last_of(const Curve* curve, Quantity quantity = Quantity::kPlain) {
  if (curve == nullptr || curve->num_finite() == 0) return "";
  return value_text(curve->last().value, quantity);
}

std::string time_of(const RunData& run) {
  const auto seconds = find_value<double>(run.summary, "seconds");
  if (!has_current_summary(run) || !seconds) return "";
  return human_seconds(*seconds) + (resumed_steps(run).empty() ? "" : " since the last start");
}

std::string ranks_of_run(const RunData& run) {
  const auto world = find_value<int64_t>(run.env, "world");
  if (!world) return "";
  const auto device = find_value<std::string>(run.env, "device");
  return counted(*world, "rank") + (device ? ", " + *device : "");
}

std::string size_of_last_checkpoint(const RunData& run) {
  if (run.checkpoints.empty()) return "";
  const CheckpointFacts& last = run.checkpoints.back();
  const std::string size = value_text(static_cast<double>(last.bytes), Quantity::kBytes);
  return fmt::format("step {}, {}", grouped(last.step), last.damage.empty() ? size : "damaged");
}

/// When the run began.
std::string date_of(const RunData& run) {
  const auto starts = run.env.find("starts");
  const bool has_start = starts != run.env.end() && starts->is_array() && !starts->empty();
  return has_start ? find_value<std::string>(starts->front(), "time").value_or("") : "";
}

std::string parameters_of(const RunData& run) {
  const auto count = find_value<double>(run.env, "parameters");
  return count ? grouped(*count) : "";
}

std::string rate_of(const RunData& run) {
  const auto rate = find_value<double>(run.summary, "samples_per_second");
  if (has_current_summary(run) && rate && *rate > 0) return value_text(*rate, Quantity::kPlain);
  return last_of(run.steps.find("samples_per_second"));
}

/// Adds a row: the name, then the value of each run, "" where it has none. Adds nothing if no run
/// has one.
template <class Value>
void add_fact(TableRows& facts, const std::string& name, const Report& report, const Value& value) {
  std::vector<std::string> fact{name};
  for (const RunData& run : report.runs) fact.push_back(value(run));
  if (std::ranges::count(fact, "") < std::ssize(report.runs)) facts.push_back(std::move(fact));
}

/// Keys of all evaluation metrics in order, without constant counts.
std::vector<std::string> scores_of(const Report& report) {
  std::vector<std::string> keys;
  for (const RunData& run : report.runs) {
    for (const Curve& curve : run.evaluations.curves()) {
      const bool is_score = !curve.is_count() && curve.key() != "seconds";
      if (is_score && std::ranges::find(keys, curve.key()) == keys.end()) {
        keys.push_back(curve.key());
      }
    }
  }
  return keys;
}

TableRows facts_of(const Report& report) {
  TableRows facts;
  const auto add_key = [&](const char* name, const char* path) {
    add_fact(facts, name, report, [path](const RunData& run) { return recipe_value(run, path); });
  };
  if (report.is_comparison()) {
    add_fact(facts, "run", report, [](const RunData& run) { return run.name; });
  }
  add_fact(facts, "state", report, state_of);
  add_fact(facts, "steps", report, steps_of);
  add_fact(facts, "training loss", report,
           [](const RunData& run) { return last_of(run.steps.find("loss")); });
  for (const std::string& key : scores_of(report)) {
    const MetricInfo info = metric_info(key);
    add_fact(facts, (key == "loss" ? "validation " : "") + info.label, report,
             [&](const RunData& run) { return last_of(run.evaluations.find(key), info.quantity); });
  }
  add_fact(facts, "samples per second", report, rate_of);
  add_fact(facts, "time", report, time_of);
  add_key("model", "model.backbone");
  add_fact(facts, "parameters", report, parameters_of);
  add_key("data", "data.source");
  add_fact(facts, "ranks", report, ranks_of_run);
  add_fact(facts, "started", report, date_of);
  add_fact(facts, "newest checkpoint", report, size_of_last_checkpoint);
  return facts;
}

/// A row for each of several runs, with a column for each fact.
CaptionedTable comparison(const TableRows& facts) {
  CaptionedTable table{"Runs", TableRows(facts.front().size())};
  for (const std::vector<std::string>& fact : facts) {
    for (size_t i = 0; i < fact.size(); ++i) table.rows[i].push_back(fact[i]);
  }
  return table;
}

std::vector<std::string> notes_of_run(const RunData& run) {
  std::vector<std::string> notes;
  for (const Json& note : run.summary.value("notes", Json())) {
    if (note.is_string()) notes.push_back(note.get<std::string>());
  }
  const auto count = [](const Json& json, const char* key) {
    return find_value<int64_t>(json, key).value_or(0);
  };
  const int64_t skipped = std::max(run.skipped_steps, count(run.summary, "skipped_steps"));
  if (skipped > 0) {
    notes.push_back(counted(skipped, "step") + " skipped: a loss or gradients were not finite");
  }
  if (const int64_t failed = count(run.summary, "failed_saves"); failed > 0) {
    notes.push_back(counted(failed, "save") + " of a checkpoint failed");
  }
  const Json replaced = run.summary.value("substituted", Json());
  for (const char* split : {"train", "valid"}) {
    if (const int64_t samples = count(replaced, split); samples > 0) {
      notes.push_back(
          fmt::format("data.{}: {} corrupt and replaced", split, counted(samples, "sample")));
    }
  }
  notes.insert(notes.end(), run.problems.begin(), run.problems.end());
  return notes;
}

}  // namespace

void add_overview(const Report& report) {
  const TableRows facts = facts_of(report);
  report.page.begin_section("overview", "Overview");
  if (report.is_comparison()) {
    report.page.add_table(comparison(facts));
  } else {
    report.page.add({{"facts", facts}});
  }
  std::vector<std::string> notes;
  for (const RunData& run : report.runs) {
    for (const std::string& note : notes_of_run(run)) {
      notes.push_back((report.is_comparison() ? run.name + ": " : "") + note);
    }
  }
  report.page.begin_section("notes", "Notes");
  if (!notes.empty()) report.page.add({{"list", notes}});
}

}  // namespace shoal
