#include "launch/report/report.h"

#include <gtest/gtest.h>

#include <cmath>

#include "launch/pages/page.h"
#include "launch/report/sections.h"
#include "tests/launch/runs/run_folder_fixture.h"
#include "tests/support/markup.h"

namespace shoal {
namespace {

using testing::count_of;
using testing::DrawnRun;
using testing::markup_mistake;
using testing::read_file;
using testing::ScratchFolder;
using testing::write_drawn_run;
using testing::write_file;

std::string page_of(const DrawnRun& run) {
  const ScratchFolder scratch;
  return run_report_page({read_run(write_drawn_run(scratch, run))});
}

/// EXPECT_THAT would print the page.
bool page_has(const std::string& page, const std::string& text) {
  return page.find(text) != std::string::npos;
}

/// Whether the page has a section of this heading.
bool has_section(const std::string& page, const std::string& heading) {
  return page.find(">" + heading + "</h2>") != std::string::npos;
}

/// What is not accessible in it: pictures without names, tables without captions, levels of
/// headings that are left out.
std::string access_mistake(const std::string& page) {
  if (count_of(page, "<svg ") != count_of(page, "role=\"img\" aria-labelledby=")) {
    return "an SVG without a name";
  }
  if (count_of(page, "<svg ") != count_of(page, "<desc ")) return "an SVG without a description";
  if (count_of(page, "<table>") != count_of(page, "<caption>")) return "a table without a caption";
  if (count_of(page, "<th ") != count_of(page, "<th scope=")) return "a head without a scope";
  if (count_of(page, "<img ") != count_of(page, " alt=\"")) return "an image without a text";
  if (count_of(page, "<h1") != 1) return "not one first heading";
  char before = '1';
  for (size_t at = page.find("<h"); at != std::string::npos; at = page.find("<h", at + 1)) {
    const char level = page[at + 2];
    if (level < '1' || level > '6') continue;
    if (level > before + 1) return std::string("a heading of level ") + level + " below " + before;
    before = level;
  }
  return "";
}

TEST(RunReport, HasASectionForEachKindOfData) {
  const std::string page = page_of({.gates = 2, .permutations = 2});
  EXPECT_EQ(markup_mistake(page), "");
  EXPECT_EQ(access_mistake(page), "");
  for (const char* heading : {"Overview", "Notes", "Training", "Evaluations", "Speed and memory",
                              "Experts and routing", "Token gates", "Masks and permutations",
                              "Checkpoints and starts", "Recipe", "Environment"}) {
    EXPECT_TRUE(has_section(page, heading)) << heading;
  }
  EXPECT_TRUE(page_has(page, "<h1>Run drawn</h1>"));
  EXPECT_TRUE(page_has(page, "<li>a note &lt;b&gt;</li>"));
  EXPECT_TRUE(page_has(page, ">loss over steps</title>"));
  EXPECT_TRUE(page_has(page, ">a task score over steps</title>"));
  EXPECT_TRUE(page_has(page, "<dt>training loss</dt><dd>0.5</dd>"));
  EXPECT_TRUE(page_has(page, "<dt>a task score</dt><dd>0.9</dd>"));
  EXPECT_TRUE(page_has(page, "<dt>state</dt><dd>finished</dd>"));
  EXPECT_TRUE(page_has(page, "<h3>Load of each unit</h3>"));
  EXPECT_TRUE(page_has(page, "<h3>Load of each expert rank</h3>"));
  EXPECT_TRUE(page_has(page, "2026-01-02 03:04:05 UTC"));
}

TEST(RunReport, ShowsConfusionsAndTellsOfOtherFiles) {
  const ScratchFolder scratch;
  const std::string run = write_drawn_run(scratch, {});
  EXPECT_FALSE(has_section(run_report_page({read_run(run)}), "Confusions of classes"));
  write_file(run + "/confusion.json", R"({"step": 7, "classes": [
    {"class": 0, "class_name": "c<t", "samples": 3, "recall": 0.5, "precision": 1.0, "f1": 0.66},
    {"class": 1, "class_name": "dog", "samples": 1, "recall": 1.0, "precision": 0.25, "f1": 0.4}],
    "matrix": [[2, 1], [0, 1]], "worst": [{"label": 0, "predicted": 1, "samples": 1}],
    "mistakes": [{"sample": 5, "file": "a.png", "label": 0, "predicted": 1, "probability": 0.875}]})");
  const std::string page = run_report_page({read_run(run)});
  EXPECT_EQ(markup_mistake(page), "");
  EXPECT_EQ(access_mistake(page), "");
  EXPECT_TRUE(has_section(page, "Confusions of classes"));
  for (const char* part : {"step 7", "<td>c&lt;t</td><td>3</td><td>50.00%</td>", "<td>87.50%</td>",
                           "a.png", "<th scope=\"row\">0</th><td>2</td><td>1</td>"}) {
    EXPECT_TRUE(page_has(page, part)) << part;
  }
  for (const char* other : {"{\"classes\": []}", "{\"a\": 1}", "{\"step\": 1, \"classes\": [1]}"}) {
    write_file(run + "/confusion.json", other);
    EXPECT_TRUE(page_has(run_report_page({read_run(run)}), "confusion.json: not as")) << other;
  }
}

TEST(RunReport, DrawsNoMatrixOfManyClasses) {
  nlohmann::ordered_json confusion{
      {"step", 1}, {"worst", nlohmann::json::array()}, {"mistakes", nlohmann::json::array()}};
  for (int i = 0; i < 31; ++i) confusion["classes"].push_back({{"class", i}, {"recall", 0.01 * i}});
  confusion["matrix"] = std::vector<std::vector<int>>(31, std::vector<int>(31));
  const auto tables = confusion_tables(confusion);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].rows.size(), 32u);  // the head, and all classes
}

TEST(RunReport, LeavesOutSectionsWithoutData) {
  const std::string page = page_of({.layers = 0, .evaluations = 0});
  EXPECT_EQ(markup_mistake(page), "");
  for (const char* heading : {"Evaluations", "Experts and routing", "Token gates",
                              "Masks and permutations", "Other numbers"}) {
    EXPECT_FALSE(has_section(page, heading)) << heading;
  }
  // The table of contents leads to what is there.
  EXPECT_EQ(count_of(page, "<li><a href=\"#"), count_of(page, "<h2 id="));
}

TEST(RunReport, NeedsNothingFromElsewhere) {
  const std::string page = page_of({});
  for (const char* part : {"<script", "http:", "https:", "src=\"//", "@import", "url("}) {
    EXPECT_FALSE(page_has(page, part));
  }
}

TEST(RunReport, OfARunInProgressSaysSo) {
  EXPECT_TRUE(page_has(page_of({.is_finished = false}), "in progress, or ended without a summary"));
}

TEST(RunReport, TellsASummaryFromBeforeAResume) {
  const ScratchFolder scratch;
  const std::string folder = write_drawn_run(scratch, {});
  write_file(folder + "/summary.json", R"({"exit_code": 75, "steps": 40, "seconds": 1.0})");
  write_file(folder + "/env.json",
             R"({"starts": [{"step": 0}, {"step": 70}, {"step": 40, "world": 4}]})");
  const std::string page = run_report_page({read_run(folder)});
  EXPECT_TRUE(page_has(page, "resumed, in progress or ended without a summary"));
  // The resume at step 70 was undone by the one at 40.
  const size_t at = page.find("<figure");
  const std::string first_figure = page.substr(at, page.find("</figure>", at) - at);
  EXPECT_EQ(count_of(first_figure, "class=\"mark\""), 1);
}

TEST(RunReport, ShowsRunsSideBySide) {
  const ScratchFolder scratch;
  const std::vector<RunData> runs{
      read_run(write_drawn_run(scratch, {.name = "a", .loss = 0.5})),
      read_run(write_drawn_run(scratch, {.name = "b", .lines = 50, .loss = 0.25}))};
  const std::string page = run_report_page(runs);
  EXPECT_EQ(markup_mistake(page), "");
  EXPECT_EQ(access_mistake(page), "");
  EXPECT_TRUE(page_has(page, "<h1>2 runs: a, b</h1>"));
  EXPECT_TRUE(page_has(page, "<th scope=\"row\">training loss</th><td>0.5</td><td>0.25</td>"));
  const size_t at = page.find("<figure");
  const std::string first_figure = page.substr(at, page.find("</figure>", at) - at);
  EXPECT_TRUE(page_has(first_figure, "class=\"l0\""));
  EXPECT_TRUE(page_has(first_figure, "class=\"l1\""));
  EXPECT_TRUE(page_has(page, "<th scope=\"row\">run.name</th><td>a</td><td>b</td>"));
  EXPECT_FALSE(page_has(page, "<th scope=\"row\">train.batch</th><td>64</td><td>64</td>"));
}

TEST(RunReport, TellsRunsOfOneNameApart) {
  const ScratchFolder x, y;
  const std::string a = write_drawn_run(x, {.lines = 5}), b = write_drawn_run(y, {.lines = 5});
  const std::string page = run_report_page({read_run(a), read_run(b)});
  EXPECT_TRUE(page_has(page, "<h1>2 runs: " + a + ", " + b + "</h1>"));
}

TEST(RunReport, StaysSmallForAHundredThousandLines) {
  const std::string page = page_of({.lines = 100'000, .layers = 1, .gates = 1});
  EXPECT_EQ(markup_mistake(page), "");
  EXPECT_LT(page.size(), size_t{1} << 20);
  const std::string many_layers =
      page_of({.lines = 2'000, .layers = 24, .units = 64, .permutations = 30});
  EXPECT_EQ(markup_mistake(many_layers), "");
  EXPECT_LT(many_layers.size(), size_t{3} << 20);
}

TEST(RunReport, DrawsManyLayersAsRows) {
  const std::string page = page_of({.permutations = 12});
  EXPECT_TRUE(page_has(page, "12 rows, one a layer; from 0.000833 to 1."));
  EXPECT_TRUE(page_has(page, "<li>blocks.11.fc1</li>"));
}

TEST(RunReport, DrawsLayersOverTheSameStepsWhereverTheyAreLogged) {
  const ScratchFolder scratch;
  const std::string folder = write_drawn_run(scratch, {});  // 100 steps
  // One start logs every 10 steps, the next one, after lines that are lost, every 20. The last
  // layer has its last line at step 60.
  std::string lines;
  for (const int64_t step : {10, 20, 60, 80, 100}) {
    for (int64_t layer = 0; layer < (step > 60 ? 8 : 9); ++layer) {
      lines += fmt::format("{{\"step\":{},\"layer\":\"l{}\",\"distance\":{}}}\n", step, layer,
                           layer == 0 ? step : 0);
    }
  }
  write_file(folder + "/permutations.jsonl", lines);
  Picture expected{100, 9, {}};
  for (int64_t layer = 0; layer < 9; ++layer) {
    for (int64_t step = 1; step <= 100; ++step) {
      const int64_t logged = step <= 20 ? (step + 9) / 10 * 10 : (step + 19) / 20 * 20;
      const bool is_lost = step > 20 && (layer == 8 ? step <= 50 || step > 60 : step <= 40);
      const double level = std::round(layer == 0 ? logged / 100.0 * 63 : 0) / 63;
      expected.pixels.push_back(is_lost ? Rgb{128, 128, 128} : viridis(level));
    }
  }
  const std::string page = run_report_page({read_run(folder)});
  EXPECT_TRUE(page_has(page, png_address(expected)));
  EXPECT_TRUE(page_has(page, "9 rows, one a layer; from 0 to 100."));
}

TEST(RunReport, DrawsWhereInTheTextGatesOpen) {
  const std::string page = page_of({.lines = 2, .gates = 3});
  EXPECT_TRUE(page_has(page, "<h3>Gate rate by position in the text</h3>"));
  // Half of both parts, then none of the first and all of the second.
  const Rgb half = viridis(std::round(0.5 * 63) / 63);
  EXPECT_TRUE(page_has(page, png_address({2, 2, {half, viridis(0), half, viridis(1)}})));
  EXPECT_TRUE(page_has(page, ">blocks.2.gate over steps</title>"));
  EXPECT_TRUE(page_has(page, "At the last step, 0 % in row '0 %' to 100.0 % in row '50 %'."));
  EXPECT_FALSE(page_has(page_of({}), "Gate rate by position"));
}

TEST(RunReport, ShowsPicturesOfSamples) {
  const ScratchFolder scratch;
  const std::string folder = write_drawn_run(scratch, {.has_pictures = true});
  const std::string page = run_report_page({read_run(folder)});
  EXPECT_EQ(markup_mistake(page), "");
  EXPECT_EQ(access_mistake(page), "");
  EXPECT_TRUE(has_section(page, "Pictures of samples"));
  EXPECT_TRUE(page_has(page, "At step 100: the first 2 samples of the validation data"));
  EXPECT_TRUE(
      page_has(page,
               "alt=\"2 samples, a row each. From the left: clean, restored &lt;b&gt;. PSNR "
               "(dB) of restored &lt;b&gt;: 12 to 24.5.\""));
  EXPECT_TRUE(page_has(page, png_address(read_file(folder + "/pictures.png"))));
  EXPECT_TRUE(page_has(page, "<th scope=\"row\">2</th><td>24.5</td>"));
  EXPECT_FALSE(has_section(page_of({}), "Pictures of samples"));
}

TEST(RunReport, SetsMemoryUnitsApart) {
  EXPECT_TRUE(page_has(page_of({.units = 6, .memory_units = 4}),
                       "above the gap experts, below it memory units (2 to 5)"));
  EXPECT_FALSE(page_has(page_of({.units = 6}), "memory units ("));
}

TEST(RunReport, TellsADamagedCheckpoint) {
  const ScratchFolder scratch;
  const std::string folder = write_drawn_run(scratch, {});
  std::filesystem::create_directories(folder + "/ckpt/step-00000050");
  write_file(folder + "/ckpt/step-00000050/manifest.json", "{}");
  const std::string page = run_report_page({read_run(folder)});
  EXPECT_TRUE(page_has(page, "<dt>newest checkpoint</dt><dd>step 50, damaged</dd>"));
  EXPECT_TRUE(page_has(page, "<td>damaged: "));
}

TEST(RunReport, IsWrittenBesideTheRun) {
  const ScratchFolder scratch;
  const std::string folder = write_drawn_run(scratch, {});
  PosixFileSystem files;
  EXPECT_EQ(report_file(folder + "/"), report_file(folder));
  write_run_report({folder}, report_file(folder), files);
  EXPECT_TRUE(page_has(read_file(folder + "/report.html"), "</html>"));
}

}  // namespace
}  // namespace shoal
