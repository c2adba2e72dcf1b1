#include "launch/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <ranges>

#include "launch/report/sections.h"
#include "launch/runs/runs.h"
#include "runtime/base/json_text.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

/// Replaces equal names of runs by their paths.
void name_apart(std::vector<RunData>& runs) {
  std::map<std::string, int> count;
  for (const RunData& run : runs) ++count[run.name];
  for (RunData& run : runs) {
    if (count[run.name] > 1) run.name = run.path;
  }
}

std::string title_of(const std::vector<RunData>& runs) {
  if (runs.size() == 1) return "Run " + runs.front().name;
  constexpr size_t kMostNames = 8;
  std::vector<std::string> names;
  for (const RunData& run : runs | std::views::take(kMostNames)) names.push_back(run.name);
  if (runs.size() > kMostNames) names.emplace_back("\u2026");
  return fmt::format("{} runs: {}", runs.size(), join_words(names));
}

/// How many points of a curve a page has room for.
size_t most_points_of(const std::vector<RunData>& runs) {
  constexpr size_t kMostNumbers = 40'000, kLeast = 60;
  size_t curves = 1;
  for (const RunData& run : runs) {
    curves += run.steps.curves().size() + run.evaluations.curves().size();
    for (const auto* layers : {&run.experts, &run.gates, &run.permutations}) {
      for (const LayerRecords& layer : *layers) curves += layer.numbers.curves().size();
    }
  }
  return std::clamp(kMostNumbers / curves, kLeast, Curve::kMostBuckets);
}

/// What figures refer to of a run, with units of the horizontal axis at some of its steps.
Page::Json axis_of(const RunData& run) {
  constexpr size_t kMostPlaces = 100;
  Page::Json json{{"name", run.name}, {"marks", resumed_steps(run)}, {"last_step", run.last_step}};
  const auto tokens = run.env.value("tokens_per_sample", Page::Json());
  const Curve* samples = run.steps.find("samples");
  const size_t count = run.hours.buckets().size(), each = count / kMostPlaces + 1;
  for (size_t i = std::min(each, count); i > 0; i = i < count ? std::min(i + each, count) : 0) {
    const Curve::Bucket& place = samples->buckets()[i - 1];
    json["step"].push_back(place.last_step);
    json["samples"].push_back(place.high);
    json["hours"].push_back(run.hours.buckets()[i - 1].high);
    if (tokens.is_number() && tokens > 0)
      json["tokens"].push_back(place.high * tokens.get<double>());
  }
  return json;
}

/// The runs that the paths name: a run itself, or the trained ones below a folder.
std::vector<std::string> runs_at(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    const size_t before = found.size();
    for (const std::string& run : list_runs(path)) {
      if (fs::exists(run + "/metrics.jsonl")) found.push_back(run);
    }
    if (found.size() == before) found.push_back(path);
  }
  return found;
}

/// A single run's report.html, or comparison.html in the innermost folder that holds all runs.
std::string default_file(const std::vector<std::string>& runs) {
  namespace fs = std::filesystem;
  if (runs.size() == 1) return report_file(runs.front());
  fs::path common = fs::weakly_canonical(runs.front()).parent_path();
  for (const std::string& run : runs) {
    const fs::path folder = fs::weakly_canonical(run).parent_path();
    while (*folder.lexically_relative(common).begin() == "..") common = common.parent_path();
  }
  return (fs::proximate(common) / "comparison.html").lexically_normal().string();
}

std::vector<RunData> read_runs(const std::vector<std::string>& paths) {
  std::vector<RunData> runs;
  for (const std::string& path : paths) runs.push_back(read_run(path));
  return runs;
}

}  // namespace

Page report_page(const std::vector<RunData>& read) {
  std::vector<RunData> runs = read;
  name_apart(runs);
  Page page(title_of(runs));
  for (const RunData& run : runs) page.add_run(axis_of(run));
  const Report report{runs, page, most_points_of(runs)};
  add_overview(report);
  add_metrics(report);
  add_confusion(report);
  add_records(report);
  return page;
}

std::string report_file(const std::string& run) {
  return run + (run.ends_with('/') ? "" : "/") + "report.html";
}

void write_run_report(const std::vector<std::string>& runs, const std::string& file,
                      FileSystem& files) {
  replace_file(files, file, report_page(read_runs(runs)).html());
}

ExitCode report(const ReportArguments& arguments, std::ostream& out) {
  const std::vector<std::string> runs = runs_at(arguments.runs);
  if (arguments.json) {
    out << json_text(report_page(read_runs(runs)).json()) << "\n";
    return ExitCode::kOk;
  }
  const std::string file = arguments.out.empty() ? default_file(runs) : arguments.out;
  PosixFileSystem files;
  write_run_report(runs, file, files);
  out << file << "\n";
  return ExitCode::kOk;
}

}  // namespace shoal
