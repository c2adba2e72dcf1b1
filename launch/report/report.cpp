#include "launch/report/report.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "launch/pages/page.h"
#include "launch/report/curve_figure.h"
#include "launch/report/sections.h"
#include "runtime/base/build_info.h"

namespace shoal {
namespace {

// Figures are shown at about their natural width, so that their text is readable on any screen.
constexpr std::string_view kReportStyle = R"(
:root { --box: #f4f5f6; }
@media (prefers-color-scheme: dark) { :root { --box: #222426; } }
header, main { max-width: 100rem; margin: 0 auto; }
h1 { margin: 8px 0; font-size: 26px; }
h2 { margin: 36px 0 12px; font-size: 20px; border-bottom: 1px solid var(--line); padding-bottom: 4px; }
h3 { margin: 20px 0 8px; font-size: 16px; overflow-wrap: anywhere; }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 0; padding: 0; }
nav a { display: inline-block; padding: 4px 0; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(140px, 1fr));
  gap: 10px; margin: 0; }
.facts div { background: var(--box); border-radius: 6px; padding: 8px 12px; }
.facts dt { color: var(--soft); font-size: 13px; }
.facts dd { margin: 0; font-size: 17px; font-weight: 600; overflow-wrap: anywhere;
  font-variant-numeric: tabular-nums; }
.notes { margin: 0; padding-left: 20px; max-width: 60rem; overflow-wrap: anywhere; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 350px), 1fr));
  gap: 18px 24px; margin-bottom: 12px; }
.frame { fill: none; stroke: var(--line); }
.heat image, .sheet img { image-rendering: pixelated; }
.sheet { margin-bottom: 12px; }
.sheet img { display: block; width: 100%; height: auto; }
.sheet .heads { display: grid; align-items: end; font-size: 13px; margin: 4px 0 2px;
  color: var(--soft); line-height: 1.3; }
.heads span { overflow-wrap: anywhere; padding-right: 6px; box-sizing: border-box; }
.hint { margin: 0 0 10px; color: var(--soft); }
.legendbox p { margin: 0 0 6px; max-width: 60rem; }
.plot .colours { margin: 4px 2.5% 0 13.5%; max-width: none; }
details { margin: 8px 0; }
summary { cursor: pointer; padding: 4px 0; }
#content th[scope=col] { text-align: left; }
#content td { white-space: normal; overflow-wrap: break-word; text-align: left; }
#content th[scope=row] { white-space: normal; overflow-wrap: anywhere; min-width: 7em; }
#content td small { color: var(--soft); }
footer { margin-top: 40px; color: var(--soft); font-size: 13px; }
@media print { nav, .skip { display: none; } figure { break-inside: avoid; } }
)";

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
  std::string names;
  for (const RunData& run : runs) names += (names.empty() ? "" : ", ") + run.name;
  return fmt::format("{} runs: {}", runs.size(), names);
}

std::string navigation(const std::vector<Section>& sections) {
  std::string items;
  for (const Section& section : sections) {
    items += fmt::format("<li><a href=\"#{}\">{}</a></li>\n", section.id, section.heading);
  }
  return fmt::format("<nav aria-label=\"Sections\"><ul>\n{}</ul></nav>\n", items);
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

}  // namespace

std::string run_report_page(const std::vector<RunData>& read) {
  std::vector<RunData> runs = read;
  name_apart(runs);
  FigureIds ids;
  std::vector<Section> sections{overview_section(runs), notes_section(runs)};
  for (Section& section : metric_sections(runs, ids)) sections.push_back(std::move(section));
  sections.push_back(confusion_section(runs));
  sections.push_back(checkpoints_section(runs));
  sections.push_back(recipe_section(runs));
  sections.push_back(environment_section(runs));
  std::erase_if(sections, [](const Section& section) { return section.body.empty(); });
  std::string html =
      page_head(title_of(runs), curve_style() + std::string(kReportStyle), navigation(sections));
  for (const Section& section : sections) html += section_html(section);
  return html + fmt::format("<footer>Written by shoal {}.</footer>\n", build_info().version) +
         kPageEnd;
}

std::string report_file(const std::string& run) {
  return run + (run.ends_with('/') ? "" : "/") + "report.html";
}

void write_run_report(const std::vector<std::string>& paths, const std::string& file,
                      FileSystem& files) {
  std::vector<RunData> runs;
  for (const std::string& path : paths) runs.push_back(read_run(path));
  replace_file(files, file, run_report_page(runs));
}

ExitCode report(const ReportArguments& arguments, std::ostream& out) {
  if (arguments.runs.size() > kNumCurveColours) {
    throw Error(ExitCode::kUsage,
                fmt::format("report: {} runs, but there are colours for {} in one picture",
                            arguments.runs.size(), kNumCurveColours),
                "write several pages");
  }
  const std::string file = arguments.out.empty() ? default_file(arguments.runs) : arguments.out;
  PosixFileSystem files;
  write_run_report(arguments.runs, file, files);
  out << file << "\n";
  return ExitCode::kOk;
}

}  // namespace shoal
